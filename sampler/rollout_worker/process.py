"""The rollout worker's process: makes the environments, then runs the worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cloudpickle
import gymnasium as gym

from sampler import seeds
from sampler.actions import mask_size
from sampler.config import SamplerConfig
from sampler.envs import make
from sampler.errors import ConfigError, EnvError
from sampler.rollout_worker.lanes import EnvLanes, Lanes, VectorLanes
from sampler.rollout_worker.worker import RolloutWorker
from sampler.shm.shared import Shared
from sampler.shm.signals import Bell
from sampler.supervisor.child import run_child


@dataclass(frozen=True)
class EnvironmentFacts:
    """What one environment says about itself."""

    observation_space: gym.Space
    action_space: gym.Space
    frame_stack: int
    frame_skip: int
    action_mask_size: int
    vector_lanes: int
    """Environments in a vector environment; 0 for a single one."""


def inspect_environment(config: SamplerConfig) -> EnvironmentFacts:
    """Make one environment, look at it and close it. Raises EnvError or ConfigError."""
    env: Any = make(config.env, **config.env_kwargs)
    try:
        vector_lanes = env.num_envs if isinstance(env, gym.vector.VectorEnv) else 0
        if vector_lanes not in (0, config.lanes_per_group):
            raise ConfigError(
                f"the vector environment has {vector_lanes} lanes but a group has "
                f"{config.lanes_per_group}; set envs_per_worker to groups x {vector_lanes}"
            )
        info = env.reset(seed=seeds.integer(config.seed, seeds.LANE, config.lanes))[1]
        observation_space = env.single_observation_space if vector_lanes else env.observation_space
        action_space = env.single_action_space if vector_lanes else env.action_space
        masked = "action_mask" in info or (
            isinstance(observation_space, gym.spaces.Dict)
            and "action_mask" in observation_space.spaces
        )
        return EnvironmentFacts(
            observation_space,
            action_space,
            attribute(env, "frame_stack", 1),
            attribute(env, "frame_skip", 1),
            mask_size(action_space) if masked else 0,
            vector_lanes,
        )
    except (ConfigError, EnvError):
        raise
    except Exception as error:
        raise EnvError(
            f"env {config.env}: the first reset failed ({type(error).__name__}: {error}); "
            "correct the environment or its keyword arguments"
        ) from error
    finally:
        env.close()


def attribute(env: Any, name: str, default: int) -> int:
    """An attribute of the environment or of one that it wraps."""
    while env is not None:
        value = getattr(env, name, None)
        if isinstance(value, int):
            return value
        env = getattr(env, "env", None)
    return default


def make_lanes(
    config: SamplerConfig, facts: EnvironmentFacts, worker: int, restarts: int, shared: Shared
) -> list[Lanes]:
    """The environments of a worker: one `Lanes` for each of its groups."""
    counters = shared.counters.rollout[worker]
    position = counters.index["lane"]
    heartbeat = counters.words[position : position + 1]
    groups: list[Lanes] = []
    for group in shared.topology.groups_of(worker):
        lanes = shared.topology.lanes_of_group(group)
        lane_seeds = [
            seeds.integer(config.seed, seeds.LANE, 0 if config.identical_lanes else lane, restarts)
            for lane in lanes
        ]
        made: list[Any] = []
        for lane in range(1 if facts.vector_lanes else len(lanes)):
            heartbeat[0] = lanes[lane]
            made.append(make(config.env, **config.env_kwargs))
        if facts.vector_lanes:
            groups.append(VectorLanes(made[0], lane_seeds))
        else:
            masked = facts.action_mask_size > 0
            groups.append(EnvLanes(made, lane_seeds, heartbeat, lanes.start, masked))
    return groups


def main(
    index: int,
    restarts: int,
    pickled: bytes,
    shared: Shared,
    bell: Bell,
    policy_bell: Bell,
    learner_bell: Bell,
) -> None:
    """Entry point of the process. `pickled`: the configuration and the environment's facts."""
    counters = shared.counters.rollout[index]
    description = [f"rollout worker {index}"]

    def name() -> str:
        return f"{description[0]}, lane {counters['lane']}"

    def body() -> None:
        config, facts = cloudpickle.loads(pickled)
        description[0] += f", env {config.env}"
        lanes = make_lanes(config, facts, index, restarts, shared)
        worker = RolloutWorker(
            index,
            shared,
            bell,
            policy_bell,
            learner_bell,
            lanes,
            facts.observation_space,
            facts.frame_skip,
        )
        try:
            worker.run()
        finally:
            worker.close()

    run_child(shared, index, counters, name, body)
