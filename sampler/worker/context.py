"""Everything that one worker is given, in a process of its own or in the caller's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from sampler.config import SamplerConfig
from sampler.envs.facts import EnvironmentFacts
from sampler.process.bell import Bell, SilentBell
from sampler.process.parcel import Parcel
from sampler.shm.shared import Shared
from sampler.shm.weights import WeightStore
from sampler.spaces import stack_frames

ModelFactory = Callable[[gym.Space, gym.Space], Any]


@dataclass(frozen=True)
class WorkerContext:
    """What a worker is made from. It can be sent to a child, which gets only the bells in it, since
    file descriptors are scarce."""

    index: int
    """Its number among the workers of its kind."""
    shared: Shared
    setup: Parcel[tuple[SamplerConfig, EnvironmentFacts]]
    bell: Bell
    """The bell on which it sleeps."""
    peer_bells: dict[int, Bell]
    """Bells of the workers that it exchanges requests with, by index: a rollout worker's policy
    worker, or the rollout workers that a policy worker serves."""
    learner_bell: Bell = field(default_factory=SilentBell)
    make_model: Parcel[ModelFactory | None] | None = None
    """None if it chooses no actions. Only opening the parcel imports torch."""
    device_weights: Any = None
    """Published weights on a GPU, an int64 tensor [2, words] that the processes share; None: they
    are in the arena."""
    threads: int = 1
    """Threads for inference on the CPU."""
    restarts: int = 0
    """How often it has been started before."""

    @property
    def config(self) -> SamplerConfig:
        return self.setup.value[0]

    @property
    def facts(self) -> EnvironmentFacts:
        return self.setup.value[1]

    @property
    def observation_space(self) -> gym.Space:
        """As the model sees it: frames stacked."""
        return stack_frames(self.facts.observation_space, self.facts.frame_stack)

    @property
    def action_space(self) -> gym.Space:
        return self.facts.action_space

    @property
    def weights(self) -> WeightStore:
        """The published weights, wherever they are; a new object at each call."""
        return WeightStore(self.shared.arena, self.device_weights)
