"""Learned and sampled steps keep their ratio, whoever is faster."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from helpers.processes import wait_until
from helpers.q_learning import PLAIN, q_factory, serial_sampler

from sampler import Sampler, SamplerConfig
from sampler.learner.algorithms.apex import ApeX, ApeXConfig
from sampler.learner.replay.ratio import ReplayRatio

CONFIG = ApeXConfig(
    n_step=1, alpha=0.0, batch_size=16, replay_capacity=1000, learning_starts=0, replay_ratio=2.0
)


def test_updates_are_due_as_steps_come_in():
    ratio = ReplayRatio(0.5)
    made = []
    for _ in range(7):
        ratio.sampled += 10
        made.append(ratio.due(8))
        ratio.learned += 8 * made[-1]
    assert made == [0, 1, 0, 1, 1, 0, 1]  # floor(5 n / 8) in all
    assert ratio.value == pytest.approx(32 / 70)
    assert ratio.due(8) == 0
    again = ReplayRatio(0.5)
    again.load_state_dict(ratio.state_dict())
    assert (again.sampled, again.learned) == (70, 32)
    assert ReplayRatio(3.0).value == 0.0


def counting(learner: ApeX) -> list[int]:
    """Makes updates cheap, and counts them."""
    made: list[int] = []

    def learn() -> bool:
        made.append(learner.ratio.sampled)
        learner.descent.steps += 1
        return True

    learner.learn = learn  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("ratio", [0.1, 1.0, 8.0])
def test_a_fast_learner_waits_for_the_sampler(ratio):
    """It learns nothing from a batch for which no update is due, and everything that is."""
    config = replace(CONFIG, replay_ratio=ratio)
    with serial_sampler(8, 0, PLAIN) as sampler:
        learner = ApeX(
            sampler.model, sampler.observation_space, sampler.action_space, config, device="cpu"
        )
        made = counting(learner)
        sampled = 0
        for _ in range(12):
            batch = sampler.get_batch()
            sampled += int(batch.mask.sum())
            metrics = learner.update(batch, lambda: 0)
            assert len(made) == int(ratio * sampled / 16)
        assert metrics["perf/replay_ratio"] == pytest.approx(len(made) * 16 / sampled)


def test_steps_before_learning_starts_cause_no_burst():
    config = replace(CONFIG, learning_starts=100)
    with serial_sampler(8, 0, PLAIN) as sampler:
        learner = ApeX(
            sampler.model, sampler.observation_space, sampler.action_space, config, device="cpu"
        )
        made = counting(learner)
        stored = before = 0
        for _ in range(10):
            batch = sampler.get_batch()
            new = int(batch.mask.sum())
            stored += new
            before += new if stored < 100 else 0
            learner.update(batch, lambda: 0)
            assert len(made) == int(2.0 * (stored - before) / 16)
        assert made


class Still(gym.Env):
    """Steps as fast as anything can."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}


def test_a_fast_sampler_is_held_back():
    """While the learner makes the updates that are due, the sampler fills its buffers and stops."""
    config = SamplerConfig(
        env=Still,
        workers=1,
        envs_per_worker=4,
        rollout=8,
        batch=4,
        buffers=3,
        inference="random",
    )
    with Sampler(config) as sampler:
        network = q_factory(PLAIN)(sampler.observation_space, sampler.action_space)
        learner = ApeX(
            network, sampler.observation_space, sampler.action_space, CONFIG, device="cpu"
        )
        ahead = 2 * 32 + 4 * 8  # the other buffers, and rows in progress where one was released
        made: list[int] = []

        def learn() -> bool:
            taken = learner.ratio.sampled
            # The sampler goes on until it has filled what the learner has not taken...
            wait_until(lambda: sampler.stats()["steps"] >= taken + 2 * 32, "full buffers")
            # ... and no further, however long the learner takes.
            assert sampler.stats()["steps"] <= taken + ahead
            made.append(taken)
            return True

        learner.learn = learn  # type: ignore[method-assign]
        for _ in range(5):
            learner.update(sampler.get_batch(), lambda: 0)
        assert len(made) == 2 * 5 * 32 // 16
        assert learner.ratio.value == 2.0
