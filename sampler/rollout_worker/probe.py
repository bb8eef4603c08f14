"""Finding out what one environment says about itself, by making it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from sampler import seeds
from sampler.config import SamplerConfig
from sampler.envs import make
from sampler.envs.facts import EnvironmentFacts
from sampler.envs.frames import frame_skip, frame_stack, slow
from sampler.errors import RAISED, ConfigError, EnvError, one_line
from sampler.rollout_worker.autoreset import observed_mode
from sampler.rollout_worker.lanes import close, unpack
from sampler.rollout_worker.vector_lanes import seed_of
from sampler.spaces import leaves
from sampler.spaces.masks import mask_size


def inspect_environment(config: SamplerConfig) -> EnvironmentFacts:
    """Make one environment, look at it and close it. Raises EnvError or ConfigError."""
    env: Any = make(config.env, **config.env_kwargs)
    try:
        vector_lanes = env.num_envs if isinstance(env, gym.vector.VectorEnv) else 0
        first = config.lanes  # their seeds are those of no lane
        lanes = range(first, first + (vector_lanes or 1))
        lane_seeds = [seeds.integer(config.seed, seeds.LANE, lane) for lane in lanes]
        seed = seed_of(env, lane_seeds) if vector_lanes else lane_seeds[0]
        _, info = unpack(env.reset(seed=seed), 2, "reset")
        observation_space = env.single_observation_space if vector_lanes else env.observation_space
        action_space = env.single_action_space if vector_lanes else env.action_space
        masked = "action_mask" in info or (
            isinstance(observation_space, gym.spaces.Dict)
            and "action_mask" in observation_space.spaces
        )
        return EnvironmentFacts(
            observation_space,
            action_space,
            frame_stack(env),
            frame_skip(env),
            mask_size(action_space) if masked else 0,
            vector_lanes,
            observed_mode(env, lane_seeds[0]) if vector_lanes else None,
            slow(env),
        )
    except ConfigError:
        raise
    except RAISED as error:
        raise EnvError(
            f"env {config.env_name}: the first reset failed ({one_line(error)}); "
            "correct the environment or its keyword arguments"
        ) from error
    finally:
        close(env)


def check_spaces(env: Any, facts: EnvironmentFacts) -> None:
    """Raise EnvError if an environment's spaces differ from those that the store was made for."""
    single = "single_" if facts.vector_lanes else ""
    for kind, expected in (
        ("observation_space", facts.observation_space),
        ("action_space", facts.action_space),
    ):
        found = getattr(env, single + kind)
        same = [(leaf.name, leaf.space) for leaf in leaves(found, kind)] == [
            (leaf.name, leaf.space) for leaf in leaves(expected, kind)
        ]
        if not same:
            raise EnvError(
                f"{kind} is {found} here but was {expected} when the environment was first made; "
                "every one must have the same spaces"
            )
