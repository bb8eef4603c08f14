"""The training loop: counters, limits, hooks, resuming and stopping."""

from __future__ import annotations

import threading
import time

import gymnasium as gym
import numpy as np
import pytest

from sampler.batch import SequenceBatch
from sampler.config import SamplerConfig
from sampler.errors import BatchTimeout, ConfigError
from sampler.learner.algorithms.appo import APPO, APPOConfig
from sampler.learner.algorithms.ppo import PPO, PPOConfig
from sampler.learner.trainer import Trainer
from sampler.lease import Lease

ACTIONS = gym.spaces.Discrete(3)
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)


class FakeSampler:
    """Hands out the same batch again and again, counting what the trainer does with it."""

    def __init__(self, batch, ready: bool = True) -> None:
        self.config = SamplerConfig(
            env="x", workers=1, envs_per_worker=4, batch=4, rollout=8, groups=1
        )
        self.batch = batch
        self.ready = ready
        self.taken = self.released = self.version = 0

    def get_batch(self, timeout=None):
        if not self.ready:
            time.sleep(0.01)
            raise BatchTimeout("none yet")
        assert self.taken == self.released, "the batch before was not released"
        self.taken += 1
        batch = self.batch
        spaces = batch.observation_space, batch.action_space
        return SequenceBatch(batch.fields, batch.spec, *spaces, lease=Lease(self._release))

    def _release(self):
        self.released += 1

    def publish(self, model) -> int:
        self.version += 1
        return self.version

    def stats(self):
        return {"steps": 100, "frames": 399}  # frames are read a moment before

    def episodes(self):
        return [self.taken]


@pytest.fixture
def sampler_and_learner(tiny_model, random_fields, batch_from):
    def build(**changes):
        model = tiny_model(ACTIONS)
        batch = batch_from(random_fields(model, ACTIONS), ACTIONS)
        learner = APPO(model, OBS, ACTIONS, APPOConfig(**changes), device="cpu")
        return FakeSampler(batch), learner

    return build


def test_counters_and_hooks(sampler_and_learner):
    sampler, learner = sampler_and_learner(anneal_learning_rate=True)
    per_batch = int(sampler.batch.mask.sum())
    seen = []
    trainer = Trainer(sampler, learner, total_steps=3 * per_batch - 1, hooks=[seen.append])
    last = trainer.run()
    assert [p.steps for p in seen] == [per_batch, 2 * per_batch, 3 * per_batch]
    assert [p.batches for p in seen] == [p.updates for p in seen] == [1, 2, 3]
    assert [p.episodes for p in seen] == [[1], [2], [3]]
    assert seen[-1] is last
    assert last.frames == 4 * last.steps
    assert last.finished
    assert not seen[1].finished
    assert sampler.released == sampler.taken == 3
    assert sampler.version == 3
    assert 0 < last.learner_update <= last.run_seconds == last.seconds
    rates = [p.metrics["charts/learning_rate"] for p in seen]
    assert rates[0] == pytest.approx(1e-4)
    assert rates[0] > rates[1] > rates[2] > 0


def test_resumed_counters_go_on(sampler_and_learner):
    sampler, learner = sampler_and_learner()
    per_batch = int(sampler.batch.mask.sum())
    trainer = Trainer(sampler, learner, total_steps=2 * per_batch)
    first = trainer.run()
    state = trainer.state_dict()

    sampler, learner = sampler_and_learner()
    resumed = Trainer(sampler, learner, total_steps=4 * per_batch)
    resumed.load_state_dict(state)
    assert resumed.progress.steps == first.steps
    last = resumed.run()
    assert (last.steps, last.batches, last.updates) == (4 * per_batch, 4, 4)
    assert last.run_steps == 2 * per_batch
    assert last.seconds > first.seconds
    assert sampler.version == 3  # once for the loaded weights, then after each batch
    assert Trainer(sampler, learner, total_steps=10**9).progress.steps == 0


def test_a_finished_run_does_nothing(sampler_and_learner):
    sampler, learner = sampler_and_learner()
    trainer = Trainer(sampler, learner, total_steps=1)
    trainer.run()
    trainer.run()
    assert sampler.taken == 1


def test_stop_ends_a_wait(sampler_and_learner):
    sampler, learner = sampler_and_learner()
    sampler.ready = False
    stop = threading.Event()
    timer = threading.Timer(0.05, stop.set)
    timer.start()
    last = Trainer(sampler, learner, stop=stop).run()
    timer.join()
    assert last.steps == 0


def test_a_hook_can_stop_and_time_is_a_limit(sampler_and_learner):
    sampler, learner = sampler_and_learner()
    stop = threading.Event()
    Trainer(sampler, learner, hooks=[lambda progress: stop.set()], stop=stop).run()
    assert sampler.taken == 1
    assert 0.05 <= Trainer(sampler, learner, total_seconds=0.05).run().seconds < 5.0


def test_the_time_limit_counts_training_and_not_the_wait_for_the_first_batch(sampler_and_learner):
    sampler, learner = sampler_and_learner()
    sampler.ready = False
    timer = threading.Timer(0.5, lambda: setattr(sampler, "ready", True))
    timer.start()
    last = Trainer(sampler, learner, total_seconds=0.1).run()
    timer.join()
    assert last.steps > 0
    assert last.seconds < 0.4


def test_the_batch_is_released_when_an_update_fails(sampler_and_learner):
    sampler, learner = sampler_and_learner(max_non_finite=1)
    sampler.batch.fields["rewards"][sampler.batch.mask] = np.nan
    with pytest.raises(ArithmeticError):
        Trainer(sampler, learner).run()
    assert sampler.released == 1


def test_unsuitable_arguments_are_refused(sampler_and_learner, tiny_model):
    sampler, learner = sampler_and_learner()
    with pytest.raises(ConfigError, match="total_steps=0"):
        Trainer(sampler, learner, total_steps=0)
    with pytest.raises(ConfigError, match="sync=True"):
        Trainer(sampler, PPO(tiny_model(ACTIONS), OBS, ACTIONS, PPOConfig(), device="cpu"))
