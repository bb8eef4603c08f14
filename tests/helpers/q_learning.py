"""A small random environment, samplers and models for tests of the learners of Q-values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from sampler import Sampler, SamplerConfig
from sampler.batch import SequenceBatch
from sampler.models import ModelConfig, make_q_model


class Noise(gym.Env):
    """Random observations [3], rewards and ends; actions count from 5. With `masked`, one of the
    three actions is forbidden at every step."""

    def __init__(self, masked: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(3, start=5)
        self.masked = masked

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._draw(), self._info()

    def step(self, action):
        assert action in self.action_space
        reward = float(self.np_random.normal())
        end = self.np_random.random()
        return self._draw(), reward, end < 0.08, 0.08 <= end < 0.16, self._info()

    def _draw(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def _info(self) -> dict[str, Any]:
        if not self.masked:
            return {}
        allowed = np.ones(3, bool)
        allowed[self.np_random.integers(3)] = False
        return {"action_mask": allowed}


RECURRENT = ModelConfig(core="lstm", core_size=6, hidden=(8,), head_size=8)
PLAIN = ModelConfig(hidden=(8,), head_size=8)


def q_factory(config: ModelConfig) -> Any:
    return partial(make_q_model, config=config)


@contextmanager
def serial_sampler(
    rollout: int, overlap: int, model: ModelConfig, masked: bool = False, **changes: Any
) -> Iterator[Sampler]:
    """Four lanes of `Noise`, two batches of rows at a time, in this process."""
    settings: dict[str, Any] = {
        "env": partial(Noise, masked),
        "workers": 1,
        "envs_per_worker": 4,
        "batch": 4,
        "rollout": rollout,
        "overlap": overlap,
        "serial": True,
        "device": "cpu",
        "precision": "float32",
        **changes,
    }
    with Sampler(SamplerConfig(**settings), model=q_factory(model)) as sampler:
        yield sampler


def q_learner(kind: Any, sampler: Sampler, config: Any, model: ModelConfig) -> Any:
    """A learner of class `kind` that begins with the sampler's own weights."""
    network = q_factory(model)(sampler.observation_space, sampler.action_space)
    network.load_state_dict(sampler.model.state_dict())
    return kind(network, sampler.observation_space, sampler.action_space, config, device="cpu")


def no_publishing() -> None:
    """For an update whose weights nobody needs."""


def copy_of(learner: Any, batch: SequenceBatch) -> SequenceBatch:
    """The batch's rows in memory of their own, so that they outlive its release."""
    return learner.batch_of(batch.spec, {name: a.copy() for name, a in batch.fields.items()})
