"""A serial run that goes on from a saved state equals one in one go, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import pytest
import torch
from helpers.inspection import advance
from helpers.models import make_history
from helpers.q_learning import Noise
from helpers.samplers import SERIAL
from helpers.states import differences, through_a_file

from sampler import EnvError, Sampler, SamplerConfig
from sampler.envs.counter import CounterEnv
from sampler.errors import StateError
from sampler.learner.algorithms import r2d2
from sampler.learner.algorithms.registry import ALGORITHMS
from sampler.learner.trainer import Trainer
from sampler.models import ModelConfig
from sampler.rollout_worker import replayable

RANDOM = replace(SERIAL, device="cpu", precision="float32")
FRAMES = {"max_length": 12, "frames": True}


@pytest.fixture(autouse=True)
def one_thread():
    """Small models are fastest with one thread, wherever the cores have other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def counter_group(**kwargs: Any) -> gym.vector.VectorEnv:
    return gym.vector.SyncVectorEnv([lambda: CounterEnv(**kwargs)] * 2)


def take(sampler: Sampler, batches: int) -> list[Any]:
    """The bytes of the next batches, the games that ended meanwhile, and the counts."""
    taken = [
        {name: array.tobytes() for name, array in sampler.get_batch().fields.items()}
        for _ in range(batches)
    ]
    return [taken, sampler.episodes(), sampler.stats()["steps"], sampler.stats()["masked_steps"]]


# ---- the sampler alone


@pytest.mark.parametrize(
    ("changes", "model"),
    [
        ({}, None),
        ({"overlap": 3, "policy_workers": 2}, None),
        ({"groups": 1, "policy_workers": 0, "batch": 4, "buffers": 2}, None),
        ({"batch": 48, "buffers": 2}, None),
        ({"sync": True, "batch": 2}, None),
        ({"env_kwargs": FRAMES}, None),
        ({"env_kwargs": FRAMES, "overlap": 5}, None),
        ({"env": counter_group}, None),
        ({"env": partial(Noise, True), "env_kwargs": {}}, None),
        ({"env": "fastrl/BitFlip-v0", "env_kwargs": {}, "debug": True}, None),
        ({"env": "Pendulum-v1", "env_kwargs": {}, "rollout": 60}, None),
        ({"inference": "model"}, make_history),
        ({"inference": "model", "overlap": 5, "policy_workers": 2}, make_history),
    ],
    ids=str,
)
@pytest.mark.parametrize("steps", [0, 5])
def test_the_same_batches_follow(changes, model, steps):
    config = replace(RANDOM, **changes)
    with Sampler(config, model) as sampler:
        take(sampler, 9)
        for _ in range(steps):  # in the middle of rows
            advance(sampler)
        state = through_a_file(sampler.state_dict())
        after = take(sampler, 12)
        final = through_a_file(sampler.state_dict())
    with Sampler(config, model) as sampler:
        sampler.load_state_dict(state)
        assert take(sampler, 12) == after
        assert differences(through_a_file(sampler.state_dict()), final) == []


def test_lanes_that_were_seeded_anew_come_back(monkeypatch):
    monkeypatch.setattr(replayable, "RESEED_STEPS", 30)
    config = replace(RANDOM, env="CartPole-v1", env_kwargs={})
    with Sampler(config) as sampler:
        take(sampler, 40)
        state = through_a_file(sampler.state_dict())
        after = take(sampler, 40)
    groups = [group["lanes"] for worker in state["workers"]["rollout"] for group in worker]
    assert all((lanes["seedings"] > 3).all() for lanes in groups)
    assert all((lanes["log"]["counts"] < 200).all() for lanes in groups)
    with Sampler(config) as sampler:
        sampler.load_state_dict(state)
        assert take(sampler, 40) == after


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": 1}, "workers=1 was 2"),
        ({"seed": 4}, "seed=4 was 3"),
        ({"env_kwargs": {"max_length": 11}}, "env_kwargs="),
        ({"serial": False}, "serial=False"),
    ],
)
def test_a_state_of_other_settings_is_refused(changes, message):
    with Sampler(RANDOM) as sampler:
        state = through_a_file(sampler.state_dict())
    other = replace(RANDOM, **changes)
    with Sampler(other) as sampler, pytest.raises(StateError, match=message):
        sampler.load_state_dict(state)


def test_an_environment_with_other_spaces_is_refused():
    def env(copies):
        return lambda: CounterEnv(max_length=12, copies=copies)

    config = replace(RANDOM, env_kwargs={})
    with Sampler(replace(config, env=env(1))) as sampler:
        state = through_a_file(sampler.state_dict())
    other = replace(config, env=env(2))
    with Sampler(other) as sampler, pytest.raises(StateError, match="obs is int64"):
        sampler.load_state_dict(state)


class Drifts(CounterEnv):
    """Counts in all of its instances together."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        Drifts.resets += 1
        return observation + Drifts.resets, info


def test_an_environment_that_its_seed_does_not_determine_is_named():
    config = replace(RANDOM, env=partial(Drifts, max_length=300, min_length=300), env_kwargs={})
    with Sampler(config) as sampler:
        state = through_a_file(sampler.state_dict())
    named = r"rollout worker 0, env \w+, lane 0: .* its seed"
    with Sampler(config) as sampler, pytest.raises(StateError, match=named):
        sampler.load_state_dict(state)


class Breaks(CounterEnv):
    """Fails after 200 steps of all lanes."""

    steps = 0

    def step(self, action):
        Breaks.steps += 1
        if Breaks.steps == 200:
            raise RuntimeError("broken")
        return super().step(action)


def test_there_is_no_state_after_a_step_that_failed_halfway_or_beside_processes():
    with Sampler(replace(RANDOM, env=Breaks)) as sampler:
        assert sampler.state_dict() is not None
        with pytest.raises(EnvError, match="broken"):
            take(sampler, 100)
        with pytest.raises(StateError, match="halfway"):
            sampler.state_dict()
    message = "serial=False: .* use serial=True"
    parallel = Sampler(replace(RANDOM, serial=False))
    with parallel as sampler, pytest.raises(StateError, match=message):
        sampler.state_dict()


# ---- training

PLAIN = ModelConfig(hidden=(16,))
LSTM = ModelConfig(core="lstm", core_size=8, hidden=(16,), normalize_observations=True)
IMAGES = ModelConfig(hidden=(16,))
NORMALIZED = {"normalize_rewards": True}
REPLAY = {"save_replay": True, "replay_capacity": 300, "learning_starts": 100, "batch_size": 64}
SEQUENCES = {"burn_in": 2, "sequence": 6, "shift": 4, "init_state": "learned", "replay_ratio": 8.0}
POLE, HIDDEN = "CartPole-v1", "fastrl/CartPoleNoVelocity-v0"


def train(algorithm, env, model, changes, batches, state=None, save_at=None):
    """Train until `batches` in all. Returns the last state, what was saved at `save_at` batches,
    and the metrics and games of every batch after that or after `state`."""
    kind = ALGORITHMS[algorithm]
    learning = kind.config(**changes)
    config = SamplerConfig(
        env=env,
        workers=2,
        envs_per_worker=4,
        batch=8,
        seed=5,
        serial=True,
        sync=kind.learner.sync,
        device="cpu",
        precision="float32",
        **learning.rows(rollout=8, overlap=0),
    )
    saved, seen = None, []
    with Sampler(config, partial(kind.model, settings=model)) as sampler:
        learner = kind.learner.for_sampler(sampler, learning, "cpu", "float32")
        trainer = Trainer(sampler, learner, total_steps=10_000)

        def watch(progress):
            nonlocal saved
            seen.append((dict(progress.metrics), list(progress.episodes)))
            if progress.batches == save_at:
                saved = through_a_file(trainer.state_dict())
                seen.clear()
            if progress.batches == batches:
                trainer.stop.set()

        trainer.hooks = (watch,)
        if state is not None:
            trainer.load_state_dict(state)
        trainer.run()
        return through_a_file(trainer.state_dict()), saved, seen


def check_resuming(algorithm, env, model, changes, save_at, batches):
    whole, saved, seen = train(algorithm, env, model, changes, batches, save_at=save_at)
    assert saved is not None
    resumed, _, seen_again = train(algorithm, env, model, changes, batches, state=saved)
    assert differences(whole, resumed) == []
    assert repr(seen) == repr(seen_again)
    assert whole["batches"] == batches
    assert whole["learner"]["updates"] > saved["learner"]["updates"] > 0


@pytest.mark.parametrize(
    ("algorithm", "env", "model", "changes"),
    [
        ("appo", POLE, PLAIN, {"anneal_learning_rate": True, "epochs": 2}),
        ("appo", HIDDEN, LSTM, NORMALIZED),
        ("ppo", POLE, PLAIN, {**NORMALIZED, "minibatches": 2, "epochs": 2}),
        ("ppo", "Pendulum-v1", LSTM, {**NORMALIZED, "minibatches": 2}),
        ("a2c", HIDDEN, LSTM, {}),
        ("impala", POLE, PLAIN, NORMALIZED),
        ("dqn", POLE, PLAIN, {**REPLAY, "alpha": 0.0, "exploration": "anneal", "n_step": 1}),
        ("apex", POLE, PLAIN, {**REPLAY, **NORMALIZED, "target_every": 5}),
        ("r2d2", HIDDEN, LSTM, {**REPLAY, **SEQUENCES}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_training_goes_on_to_the_last_bit(algorithm, env, model, changes, monkeypatch):
    monkeypatch.setattr(r2d2, "DRIFT_EVERY", 2)
    check_resuming(algorithm, env, model, changes, save_at=7, batches=13)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "model"),
    [
        ("PongNoFrameskip-v4", replace(IMAGES, core="gru", core_size=8)),
        ("BreakoutNoFrameskip-v4", IMAGES),
        ("ALE/Pong-v5", IMAGES),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_training_on_atari_goes_on_to_the_last_bit(env, model, monkeypatch):
    monkeypatch.setattr(replayable, "RESEED_STEPS", 40)
    check_resuming("appo", env, model, {"reward_clip": 1.0}, save_at=31, batches=45)
