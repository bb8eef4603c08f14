"""What a policy worker is given, without a sampler around it; loads no torch."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from sampler import SamplerConfig
from sampler.envs.facts import EnvironmentFacts
from sampler.process.bell import Bell, SilentBell
from sampler.process.parcel import Parcel
from sampler.shm.shared import Shared
from sampler.worker.context import ModelFactory, WorkerContext

FACTS = EnvironmentFacts(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(9), 1, 1, 0, 0)


def policy_context(
    shared: Shared,
    bell: Bell | None = None,
    theirs: Bell | None = None,
    make_model: ModelFactory | None = None,
    restarts: int = 0,
    **settings: Any,
) -> WorkerContext:
    """Of policy worker 1, which serves rollout worker 1, whose bell is `theirs`."""
    config = SamplerConfig("CartPole-v1", device="cpu", **settings)
    return WorkerContext(
        1,
        shared,
        Parcel((config, FACTS), "it"),
        bell=bell or SilentBell(),
        peer_bells={1: theirs or SilentBell()},
        make_model=Parcel(make_model, "the model"),
        restarts=restarts,
    )
