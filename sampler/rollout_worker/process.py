"""The rollout worker's process: makes the environments, then runs the worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cloudpickle
import gymnasium as gym

from sampler import seeds
from sampler.config import SamplerConfig
from sampler.envs import make
from sampler.errors import RAISED, ConfigError, EnvError, one_line
from sampler.process.child import run_child
from sampler.rollout_worker.lanes import EnvLanes, Lanes, VectorLanes, close, unpack
from sampler.rollout_worker.replayable import ReplayableEnvLanes, ReplayableVectorLanes
from sampler.rollout_worker.worker import RolloutWorker
from sampler.shm.counters import CounterRow
from sampler.shm.shared import Shared
from sampler.shm.signals import Bell
from sampler.spaces import leaves
from sampler.spaces.actions import mask_size


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
        seed = seeds.integer(config.seed, seeds.LANE, config.lanes)
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
            attribute(env, "frame_stack", 1),
            attribute(env, "frame_skip", 1),
            mask_size(action_space) if masked else 0,
            vector_lanes,
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

    def lane_seed(lane: int, *again: int) -> int:
        """`again`: how often the lane was seeded before, if it was."""
        first = 0 if config.identical_lanes else lane
        return seeds.integer(config.seed, seeds.LANE, first, restarts, *again)

    for group in shared.topology.groups_of(worker):
        lanes = shared.topology.lanes_of_group(group)
        lane_seeds = [lane_seed(lane) for lane in lanes]
        made: list[Any] = []
        for lane in range(1 if facts.vector_lanes else len(lanes)):
            heartbeat[0] = lanes[lane]
            made.append(make(config.env, **config.env_kwargs))
            check_spaces(made[-1], facts)
        where = lane_seeds, heartbeat, lanes.start
        masked = facts.action_mask_size > 0
        if facts.vector_lanes:
            kind = ReplayableVectorLanes if config.serial else VectorLanes
            groups.append(kind(made[0], *where))
        elif config.serial:
            groups.append(ReplayableEnvLanes(made, *where, masked, lane_seed))
        else:
            groups.append(EnvLanes(made, *where, masked))
    return groups


def check_spaces(env: Any, facts: EnvironmentFacts) -> None:
    """Raise EnvError if an environment's spaces are not those that the store was made for."""
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


def place(config: SamplerConfig, counters: CounterRow, worker: int) -> str:
    """Where an error happened: worker, environment, and the lane last stepped or reset."""
    return f"rollout worker {worker}, env {config.env_name}, lane {counters['lane']}"


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
    loaded: list[SamplerConfig] = []

    def name() -> str:
        return place(loaded[0], counters, index) if loaded else f"rollout worker {index}"

    def body() -> None:
        config, facts = cloudpickle.loads(pickled)
        loaded.append(config)
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
