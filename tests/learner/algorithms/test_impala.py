"""IMPALA against autograd on a plain formula."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.models import perturb

from sampler.learner.algorithms.impala import IMPALA, IMPALAConfig
from sampler.learner.functional.optim import RMSPropTF

ACTIONS = gym.spaces.Discrete(4)
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)


def plain_loss(model, fields, config: IMPALAConfig) -> torch.Tensor:
    """The summed loss, step by step."""
    rows, steps = fields["rewards"].shape
    out = model.unroll(
        torch.as_tensor(fields["obs"]), torch.zeros(rows, 0), torch.as_tensor(fields["age"] == 0)
    )[0]
    policy = torch.distributions.Categorical(logits=out["logits"][:, :-1])
    log_probs = policy.log_prob(torch.as_tensor(fields["actions"]))
    entropy, values = policy.entropy(), out["values"]
    fixed, fixed_log_probs = values.detach(), log_probs.detach()
    rewards = fields["rewards"].clip(-1, 1)
    loss = torch.zeros(())
    for row in range(rows):
        correction, following = 0.0, float(fixed[row, steps])
        for t in reversed(range(steps)):
            if not fields["mask"][row, t]:
                continue
            terminated = fields["terminated"][row, t]
            if terminated or fields["truncated"][row, t]:
                correction, following = 0.0, float(fixed[row, t + 1])
            gamma = 0.0 if terminated else config.gamma
            ratio = float(fixed_log_probs[row, t].exp()) / np.exp(fields["log_probs"][row, t])
            rho = min(1.0, ratio)
            here, after = float(fixed[row, t]), float(fixed[row, t + 1])
            advantage = rho * (rewards[row, t] + gamma * following - here)
            correction = rho * (rewards[row, t] + gamma * after - here) + gamma * rho * correction
            following = here + correction
            loss = loss - log_probs[row, t] * advantage
            loss = loss + config.value_coef * 0.5 * (values[row, t] - following) ** 2
            loss = loss - config.entropy_coef * entropy[row, t]
    return loss


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_weights_after_an_update_equal_the_plain_formula(
    tiny_model, random_fields, batch_from, reduction
):
    model = tiny_model(ACTIONS)
    fields = random_fields(model, ACTIONS, rows=4, steps=10)
    perturb(model, seed=1, scale=0.1)
    config = IMPALAConfig(learning_rate=0.05, reduction=reduction, max_grad_norm=0)
    expected = copy.deepcopy(model)
    loss = plain_loss(expected, fields, config)
    if reduction == "mean":
        loss = loss / fields["mask"].sum()
    loss.backward()
    RMSPropTF(expected.parameters(), 0.05, config.rmsprop_decay, config.epsilon).step()
    learner = IMPALA(model, OBS, ACTIONS, config, device="cpu")
    metrics = learner.update(batch_from(fields, ACTIONS), lambda: None)
    for got, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)
    # whatever the losses' reduction, the entropy is reported per step
    assert 0 < metrics["losses/entropy"] < np.log(4)


def test_the_share_of_bounded_ratios_is_reported(tiny_model, random_fields, batch_from):
    model = tiny_model(ACTIONS)
    fields = random_fields(model, ACTIONS)
    batch = batch_from(fields, ACTIONS)
    learner = IMPALA(copy.deepcopy(model), OBS, ACTIONS, IMPALAConfig(clip_rho=1.1), device="cpu")
    perturb(learner.model, seed=1, scale=0.1)
    ratios = learner.predict(learner.rollout(batch)).log_ratios.exp().detach().numpy()
    share = (ratios > 1.1 * np.exp(0.01))[fields["mask"]].mean()
    assert 0 < share < 1
    metrics = learner.update(batch, lambda: None)
    assert metrics["losses/clipfrac"] == pytest.approx(share)
    unchanged = IMPALA(model, OBS, ACTIONS, IMPALAConfig(), device="cpu")
    assert unchanged.update(batch, lambda: None)["losses/clipfrac"] == 0
