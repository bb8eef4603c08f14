"""R2D2 against loops over single steps, and its properties on rows of a real sampler."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
import torch
from helpers.counting import CounterChecker
from helpers.models import perturb
from helpers.q_learning import (
    PLAIN,
    RECURRENT,
    copy_of,
    no_publishing,
    q_factory,
    q_learner,
    serial_sampler,
)

from sampler import Sampler, SamplerConfig
from sampler.errors import ConfigError
from sampler.learner.algorithms.r2d2 import R2D2, R2D2Config
from sampler.learner.replay.sequence_replay import sequence_priority
from sampler.models import ModelConfig

SMALL = R2D2Config(
    burn_in=3,
    sequence=6,
    shift=3,
    n_step=3,
    gamma=0.9,
    batch_size=8,
    learning_starts=0,
    replay_capacity=600,
    target_every=1000,
    learning_rate=1e-3,
)


def learner_for(sampler: Sampler, config: R2D2Config = SMALL, model: ModelConfig = RECURRENT):
    """A learner that begins with the sampler's own weights."""
    return q_learner(R2D2, sampler, config, model)


def h(x: float, eps: float = 1e-3) -> float:
    return float(np.sign(x)) * (sqrt(abs(x) + 1) - 1) + eps * x


def h_inverse(y: float) -> float:
    """By bisection, for it is monotonic."""
    low, high = -1e6, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < y else (low, middle)
    return low


@torch.no_grad()
def one_by_one(network, batch, row: int, state: torch.Tensor) -> list[np.ndarray]:
    """Q-values [A] of every observation of a row, from single steps of the network."""
    result = []
    for t in range(batch.age.shape[1]):
        obs = {name: leaf[row, t][None] for name, leaf in batch.model_obs.items()}
        outputs, state = network.step(obs, state, batch.is_first[row, t][None])
        result.append(outputs["q_values"][0].double().numpy())
    return result


def reference_errors(online, target, batch, row: int, config: R2D2Config) -> dict[int, float]:
    """Temporal differences of the real steps of one row after the burn-in, in Python numbers."""
    errors = {}
    steps = batch.rewards.shape[1]
    for t in range(config.burn_in, steps):
        if not batch.mask[row, t]:
            continue
        total, factor, end = 0.0, 1.0, t
        while True:
            total += factor * float(batch.rewards[row, end])
            factor *= 0.0 if batch.terminated[row, end] else config.gamma
            ended = bool(batch.terminated[row, end] | batch.truncated[row, end])
            end += 1
            if ended or end == t + config.n_step or end == steps:
                break
        choice = (online if config.double else target)[end].copy()
        if batch.action_mask is not None:
            choice[~batch.action_mask[row, end].numpy()] = -np.inf
        bootstrap = float(target[end][int(choice.argmax())])
        if config.value_rescaling:
            goal = h(total + factor * h_inverse(bootstrap))
        else:
            goal = total + factor * bootstrap
        errors[t] = goal - float(online[t][int(batch.actions[row, t]) - 5])
    return errors


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"init_state": "zero"},
        {"burn_in": 0},
        {"double": False, "value_rescaling": False},
        {"n_step": 1},
        {"n_step": 20},
        {"masked": True},
    ],
    ids=str,
)
def test_errors_equal_a_loop_over_single_steps(changes):
    masked = changes.get("masked", False)
    config = replace(SMALL, **{k: v for k, v in changes.items() if k != "masked"})
    with serial_sampler(config.rollout, config.overlap, RECURRENT, masked) as sampler:
        learner = learner_for(sampler, config)
        perturb(learner.target)
        batches = [copy_of(learner, sampler.get_batch()).to("cpu") for _ in range(4)]
    seen = 0
    for batch in batches:
        states = learner.initial_states(batch)
        _, errors = learner.td_errors(batch, states)
        for row in range(len(batch)):
            state = states[row][None]
            if config.init_state == "zero":
                assert not state.any()
            else:
                np.testing.assert_array_equal(state[0], batch.rnn_state[row])
            online = one_by_one(learner.model, batch, row, state)
            target = one_by_one(learner.target, batch, row, state)
            expected = reference_errors(online, target, batch, row, config)
            for t, error in expected.items():
                actual = float(errors[row, t - config.burn_in].detach())
                assert actual == pytest.approx(error, abs=2e-5)
            seen += len(expected)
    assert seen > 50


def test_actor_priorities_come_from_the_behaviour_values():
    with serial_sampler(SMALL.rollout, SMALL.overlap, RECURRENT) as sampler:
        learner = learner_for(sampler)
        perturb(learner.model)  # what the learner knows now must not matter
        batches = [copy_of(learner, sampler.get_batch()) for _ in range(6)]
    kinds = set()
    for batch in batches:
        priorities = learner.actor_priorities(batch)
        data = batch.to("cpu")
        steps = SMALL.rollout
        for row in range(len(batch)):
            q_values = [q.double().numpy() for q in data.q_values[row]]
            exact = bool(data.terminated[row, steps - 1])
            kinds.add(exact)
            # Nothing is known of the last observation; a row that does not terminate there is
            # one step shorter.
            part = data if exact else data[row : row + 1].to("cpu")
            if not exact:
                part = shortened(learner, batch, row, steps - 1).to("cpu")
            expected = reference_errors(
                [*q_values, np.zeros(3)],
                [*q_values, np.zeros(3)],
                part,
                row if exact else 0,
                SMALL,
            )
            found = np.array(list(expected.values()))
            assert priorities[row] == pytest.approx(sequence_priority(found), rel=1e-4)
    assert kinds == {True, False}


def shortened(learner: R2D2, batch, row: int, steps: int):
    """One row without its last transition."""
    fields = {}
    for name, array in batch.fields.items():
        cut = array[row : row + 1]
        if cut.ndim > 1 and cut.shape[1] in (SMALL.rollout, SMALL.rollout + 1):
            cut = cut[:, : steps + cut.shape[1] - SMALL.rollout]
        fields[name] = cut
    return learner.batch_of(batch.spec, fields)


@pytest.mark.parametrize("burn_in", [0, 3])
def test_no_gradient_enters_the_burn_in(burn_in):
    config = replace(SMALL, burn_in=burn_in)
    with serial_sampler(config.rollout, config.overlap, RECURRENT) as sampler:
        learner = learner_for(sampler, config)
        batch = copy_of(learner, sampler.get_batch())
    batch.age[:] = np.arange(1, config.rollout + 2)  # no reset between burn-in and the rest
    batch = batch.to("cpu")
    batch.fields["obs"].requires_grad_()
    state = batch.rnn_state.clone().requires_grad_()
    online, _ = learner.q_values(batch, state)
    online.sum().backward()
    gradient = batch.fields["obs"].grad.abs().amax((0, 2))
    assert (gradient[:burn_in] == 0).all()
    assert (gradient[burn_in:] > 0).all()
    assert (state.grad is None) == (burn_in > 0)


def test_weights_of_a_gradient_see_a_constant_state_after_the_burn_in():
    with serial_sampler(SMALL.rollout, SMALL.overlap, RECURRENT) as sampler:
        learner = learner_for(sampler)
        batch = copy_of(learner, sampler.get_batch()).to("cpu")
    online, _ = learner.q_values(batch, batch.rnn_state)
    online.square().sum().backward()
    actual = [p.grad.clone() for p in learner.model.parameters()]
    learner.model.zero_grad()
    early, late = slice(0, SMALL.burn_in), slice(SMALL.burn_in, None)
    parts = [
        {name: leaf[:, part] for name, leaf in batch.model_obs.items()} for part in (early, late)
    ]
    _, state = learner.model.unroll(parts[0], batch.rnn_state, batch.is_first[:, early])
    outputs, _ = learner.model.unroll(parts[1], state.detach(), batch.is_first[:, late])
    outputs["q_values"].square().sum().backward()
    for a, b in zip(actual, learner.model.parameters(), strict=True):
        torch.testing.assert_close(a, b.grad)


def drift_of(learner: R2D2, sampler: Sampler, batches: int = 10) -> dict[str, float]:
    """What the learner reports about the drift of its rows, without learning from them."""
    for _ in range(batches):
        learner.store(sampler.get_batch())
    fields, rows, _ = learner.replay.sample(64, learner.generator)
    replayed = learner.batch_of(sampler.empty_batch().spec, fields).to("cpu")
    return learner.drift(replayed, rows, learner.initial_states(replayed))


def test_stored_states_do_not_drift_while_the_weights_stay():
    with serial_sampler(SMALL.rollout, SMALL.overlap, RECURRENT) as sampler:
        learner = learner_for(sampler)
        drift = drift_of(learner, sampler)
        assert drift["losses/delta_q_first"] == pytest.approx(0.0, abs=1e-5)
        assert drift["losses/delta_q_last"] == pytest.approx(0.0, abs=1e-5)
        perturb(learner.model, scale=0.1)
        moved = drift_of(learner, sampler, batches=0)
        assert moved["losses/delta_q_first"] > 1e-3
    with serial_sampler(SMALL.rollout, SMALL.overlap, RECURRENT) as sampler:
        forgetful = drift_of(learner_for(sampler, replace(SMALL, init_state="zero")), sampler)
    assert forgetful["losses/delta_q_first"] > 1e-3
    assert forgetful["losses/delta_q_last"] < forgetful["losses/delta_q_first"]


def test_learned_states_approach_the_stored_ones():
    config = replace(SMALL, init_state="learned", learning_rate=3e-3, replay_ratio=10.0)
    with serial_sampler(config.rollout, config.overlap, RECURRENT) as sampler:
        learner = learner_for(sampler, config)
        for _ in range(15):
            metrics = learner.update(sampler.get_batch(), no_publishing)
        spec = sampler.empty_batch().spec
    assert metrics["losses/initial_state"] > 0
    fields, _, _ = learner.replay.sample(64, learner.generator)
    rows = learner.batch_of(spec, fields).to("cpu")
    later = ~rows.is_first[:, 0]
    stored, learned = rows.rnn_state[later], learner.initial_states(rows)[later]
    assert (learned - stored).square().mean() < 0.7 * stored.square().mean()
    again = learner_for(sampler, config)
    again.load_state_dict(learner.state_dict())
    torch.testing.assert_close(again.initial_states(rows), learner.initial_states(rows))


def test_a_batch_that_is_not_finite_does_not_spoil_the_learned_states():
    config = replace(SMALL, init_state="learned", replay_ratio=10.0, save_replay=True)
    with serial_sampler(config.rollout, config.overlap, RECURRENT) as sampler:
        learner = learner_for(sampler, config)
        for _ in range(3):
            learner.update(sampler.get_batch(), no_publishing)
    storage = learner.replay.storage
    good = storage.arrays["rnn_state"].copy()
    before = copy.deepcopy(learner.initial_states.state_dict())
    storage.arrays["rnn_state"][:] = np.nan
    learner.metrics.means()
    learner.learn()
    assert "losses/initial_state" not in learner.metrics.means()
    after = learner.initial_states.state_dict()
    torch.testing.assert_close(after["network"], before["network"], rtol=0, atol=0)
    storage.arrays["rnn_state"][:] = good
    learner.learn()
    assert np.isfinite(learner.metrics.means()["losses/initial_state"])
    after = learner.initial_states.state_dict()["network"]
    assert all(weight.isfinite().all() for weight in after.values())
    assert any(not torch.equal(weight, before["network"][name]) for name, weight in after.items())


def test_update_moves_priorities_of_what_was_learned():
    config = replace(SMALL, batch_size=4, replay_ratio=4 * 6 / 12)  # one update for 12 new steps
    with serial_sampler(config.rollout, config.overlap, RECURRENT) as sampler:
        learner = learner_for(sampler, config)
        for _ in range(3):
            learner.update(sampler.get_batch(), no_publishing)
        learner.replay.priorities.tree.set(np.arange(len(learner.replay)), np.zeros(1))
        learner.replay.priorities.update(np.array([2]), np.array([3.0]))  # only this row is left
        fields, _, _ = learner.replay.sample(1, learner.generator)
        batch = learner.batch_of(sampler.empty_batch().spec, fields).to("cpu")
        _, errors = learner.td_errors(batch, learner.initial_states(batch))
        valid = batch.mask[:, config.burn_in :]
        expected = float(sequence_priority(errors.detach(), valid, config.eta))
        assert learner.learn()
    leaf = learner.replay.priorities.tree.get(np.array([2]))[0]
    assert leaf == pytest.approx(expected**config.alpha, rel=1e-5)


def test_target_network_is_copied_every_so_many_updates():
    config = replace(SMALL, target_every=3, replay_ratio=4.0)  # one update for each new row
    with serial_sampler(config.rollout, config.overlap, RECURRENT) as sampler:
        learner = learner_for(sampler, config)
        weight = next(name for name, _ in learner.model.named_parameters())
        copies = []
        real_learn = learner.learn

        def learn():
            copies.append(learner.target.state_dict()[weight].clone())
            return real_learn()

        learner.learn = learn
        while len(copies) < 10:
            learner.update(sampler.get_batch(), no_publishing)
    changed = [not torch.equal(a, b) for a, b in pairwise(copies)]
    assert changed[:9] == [False, False, True] * 3
    assert not any(p.requires_grad for p in learner.target.parameters())


def test_works_without_a_recurrent_core():
    with serial_sampler(SMALL.rollout, SMALL.overlap, PLAIN) as sampler:
        learner = learner_for(sampler, replace(SMALL, replay_ratio=8.0), PLAIN)
        metrics = learner.update(sampler.get_batch(), no_publishing)
    assert learner.updates > 0
    assert np.isfinite(metrics["losses/q_loss"])
    assert "losses/delta_q_first" not in metrics


@pytest.mark.parametrize("save_replay", [True, False])
def test_state_continues_bit_for_bit(save_replay):
    config = replace(SMALL, save_replay=save_replay, replay_capacity=60, init_state="learned")
    if not save_replay:
        config = replace(config, learning_starts=24)
    with serial_sampler(config.rollout, config.overlap, RECURRENT) as sampler:
        first = learner_for(sampler, config)
        for _ in range(9):  # the replay is full and has wrapped
            first.update(sampler.get_batch(), no_publishing)
        file = io.BytesIO()
        torch.save(first.state_dict(), file)
        rest = [copy_of(first, sampler.get_batch()) for _ in range(3)]
    file.seek(0)
    second = learner_for(sampler, config)
    perturb(second.model)
    second.load_state_dict(torch.load(file, weights_only=True))
    updates = second.updates
    assert updates == first.updates > 0
    if not save_replay:
        second.update(rest[0], no_publishing)
        assert second.updates == updates, "learned before the replay was filled again"
        second.update(rest[1], no_publishing)
        second.update(rest[2], no_publishing)
        assert second.updates > updates
        return
    for batch in rest:
        metrics = [learner.update(batch, no_publishing) for learner in (first, second)]
        assert metrics[0] == metrics[1]
    for a, b in zip(
        first.model.state_dict().values(), second.model.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shift": 7}, "shift=7 exceeds sequence=6"),
        ({"init_state": "old"}, "init_state='old' is not one of"),
        ({"eta": 1.5}, "eta=1.5"),
        ({"learning_starts": 601}, "learning would never start"),
        ({"exploration": "none"}, "exploration='none'"),
        ({"replay_ratio": 0.0}, "replay_ratio=0.0"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(SMALL, **changes)


def test_unsuitable_samplers_are_refused():
    with serial_sampler(SMALL.rollout, 0, RECURRENT) as sampler:
        learner = learner_for(sampler)
        with pytest.raises(ConfigError, match="its settings need overlap=6"):
            learner.check_sampler(sampler.config)
        with pytest.raises(ConfigError, match="its settings need rollout=9"):
            learner.check_sampler(replace(sampler.config, rollout=10, overlap=6))
        learner.check_sampler(replace(sampler.config, overlap=6))


def test_a_replay_that_does_not_fit_is_refused_in_one_sentence():
    with serial_sampler(SMALL.rollout, SMALL.overlap, RECURRENT) as sampler:
        learner = learner_for(sampler, replace(SMALL, replay_capacity=10**12))
        with pytest.raises(ConfigError, match="GiB of memory are free: lower replay_capacity"):
            learner.update(sampler.get_batch(), no_publishing)


@pytest.mark.parametrize("frames", [False, True])
def test_replayed_sequences_are_what_the_environment_did(frames):
    """Four workers, sampling at every batch, the capacity wrapped many times."""
    config = SamplerConfig(
        env="fastrl/Counter-v0",
        env_kwargs={"max_length": 12, "frames": frames},
        workers=4,
        envs_per_worker=4,
        rollout=SMALL.rollout,
        overlap=SMALL.overlap,
        batch=16,
        inference="random",
        seed=5,
    )
    small = replace(SMALL, alpha=0.0, replay_capacity=3 * 50, replay_ratio=0.2)  # 50 rows
    with Sampler(config) as sampler:
        network = q_factory(PLAIN)(sampler.observation_space, sampler.action_space)
        learner = R2D2(
            network, sampler.observation_space, sampler.action_space, small, device="cpu"
        )
        checker = CounterChecker(sampler)
        seen = set()
        for _ in range(40):
            batch = sampler.get_batch()
            learner.update(batch, no_publishing)
            fields, rows, _ = learner.replay.sample(32, learner.generator)
            replayed = learner.batch_of(batch.spec, fields)
            fields["log_probs"] = np.full_like(fields["rewards"], -np.log(4))  # is not replayed
            checker.add(replayed)
            seen.update(rows.tolist())
        assert learner.updates > 0
        assert learner.replay.storage.added == 40 * 16 > 12 * len(learner.replay)
        assert len(seen) > 500
