"""Non-finite updates are skipped, named and counted, and end a run that makes nothing else."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from sampler.errors import FastrlError
from sampler.learner.algorithms.appo import APPO, APPOConfig
from sampler.learner.guards import FiniteGuard, NonFiniteError, first_non_finite

ACTIONS = gym.spaces.Discrete(3)
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)


def test_first_non_finite():
    good, bad = torch.ones(3), torch.tensor([1.0, float("inf")])
    assert first_non_finite([("a", good), ("none", None), ("b", bad), ("c", bad)]) == "b"
    assert first_non_finite([("a", good)]) is None


def test_the_guard_stops_after_the_limit_in_a_row():
    guard = FiniteGuard(3)
    guard.bad("a")
    guard.bad("b")
    guard.good()
    guard.bad("c")
    guard.bad("d")
    with pytest.raises(NonFiniteError, match=r"3 updates in a row .*first: c\)"):
        guard.bad("e")
    assert guard.skipped == 5
    fresh = FiniteGuard(3)
    fresh.load_state_dict(guard.state_dict())
    assert (fresh.skipped, fresh.in_a_row) == (5, 0)


@pytest.fixture
def learner_and_batch(tiny_model, random_fields, batch_from):
    model = tiny_model(ACTIONS)
    learner = APPO(model, OBS, ACTIONS, APPOConfig(max_non_finite=3), device="cpu")
    return learner, random_fields(model, ACTIONS), batch_from


def weights(learner) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1).clone() for p in learner.model.parameters()])


def test_a_bad_reward_costs_one_update(learner_and_batch):
    learner, fields, batch_from = learner_and_batch
    before = weights(learner)
    bad = {**fields, "rewards": fields["rewards"].copy()}
    bad["rewards"][0, 0] = np.nan
    metrics = learner.update(batch_from(bad, ACTIONS), lambda: None)
    assert torch.equal(weights(learner), before)
    assert metrics["perf/skipped_updates"] == 1
    assert not any(np.isnan(value) for value in metrics.values())
    assert learner.guard.first_bad == "losses/policy_loss"
    learner.update(batch_from(fields, ACTIONS), lambda: None)
    assert not torch.equal(weights(learner), before)
    assert learner.guard.in_a_row == 0
    assert torch.isfinite(weights(learner)).all()


def test_a_bad_reward_does_not_spoil_the_statistics(tiny_model, random_fields, batch_from):
    model = tiny_model(ACTIONS)
    config = APPOConfig(max_non_finite=2, normalize_rewards=True)
    learner = APPO(model, OBS, ACTIONS, config, device="cpu")
    fields = random_fields(model, ACTIONS)
    bad = {**fields, "rewards": fields["rewards"].copy()}
    bad["rewards"][0, 0] = np.nan
    learner.update(batch_from(bad, ACTIONS), lambda: None)
    assert learner.guard.skipped == 1
    learner.update(batch_from(fields, ACTIONS), lambda: None)
    assert learner.guard.skipped == 1
    assert all(torch.isfinite(x).all() for x in learner.reward_scaler.state_dict().values())


def test_rows_that_were_given_up_may_hold_anything(tiny_model, random_fields, batch_from):
    """As in debug mode, where released rows are filled with NaN and the largest integers."""
    model = tiny_model(ACTIONS, 4)
    config = APPOConfig(normalize_rewards=True)
    fields = random_fields(model, ACTIONS)
    for array in fields.values():
        array[2] = np.nan if array.dtype.kind == "f" else np.iinfo(np.int32).max
        if array.dtype == np.int64:
            array[2] = np.iinfo(np.int64).max
    fields["mask"][2] = False
    learner = APPO(model, OBS, ACTIONS, config, device="cpu")
    before = weights(learner)
    metrics = learner.update(batch_from(fields, ACTIONS), lambda: None)
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["perf/policy_lag_max"] == 0
    assert learner.updates == 1
    assert not torch.equal(weights(learner), before)
    assert torch.isfinite(weights(learner)).all()


def test_a_bad_parameter_is_named_and_ends_the_run(learner_and_batch):
    learner, fields, batch_from = learner_and_batch
    with torch.no_grad():
        learner.model.value.weight[0, 0] = float("nan")
    batch = batch_from(fields, ACTIONS)
    for _ in range(2):
        learner.update(batch, lambda: None)
    with pytest.raises(FastrlError, match=r"3 updates in a row .*parameter value\.weight"):
        learner.update(batch, lambda: None)


def test_a_bad_gradient_is_named(learner_and_batch):
    learner, _, _ = learner_and_batch
    model = learner.model
    # finite loss, infinite slope: the root at 0
    loss = (model.policy.weight * 0).sum().sqrt() + model.value.bias.sum()
    before = weights(learner)
    assert not learner.step(loss, {"loss": loss})
    assert learner.guard.first_bad == "gradient of policy.weight"
    assert torch.equal(weights(learner), before)
