"""A2C against autograd on n-step returns."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch

from sampler.learner.algorithms.a2c import A2C, A2CConfig

ACTIONS = gym.spaces.Discrete(4)
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)


@pytest.mark.parametrize("normalize", [False, True])
def test_weights_after_an_update_equal_the_plain_formula(
    tiny_model, random_fields, batch_from, normalize
):
    model = tiny_model(ACTIONS)
    fields = random_fields(model, ACTIONS, rows=4, steps=5)
    config = A2CConfig(
        learning_rate=0.01, optimiser="adam", normalize_advantages=normalize, max_grad_norm=0.3
    )
    expected = copy.deepcopy(model)
    out = expected.unroll(torch.as_tensor(fields["obs"]), torch.zeros(4, 0), None)[0]
    values = out["values"]
    returns = torch.zeros(4, 5)
    for row in range(4):
        following = float(values[row, 5].detach())
        for t in reversed(range(5)):
            if fields["truncated"][row, t]:
                following = float(values[row, t + 1].detach())
            if fields["terminated"][row, t]:
                following = 0.0
            following = float(fields["rewards"][row, t]) + config.gamma * following
            returns[row, t] = following
    valid = torch.as_tensor(fields["mask"])
    policy = torch.distributions.Categorical(logits=out["logits"][:, :-1])
    log_probs = policy.log_prob(torch.as_tensor(fields["actions"]))[valid]
    errors = (returns - values[:, :-1])[valid]
    advantages = errors.detach()
    if normalize:
        advantages = (advantages - advantages.mean()) / advantages.std()
    loss = -(log_probs * advantages).mean() + config.value_coef * 0.5 * (errors**2).mean()
    loss = loss - config.entropy_coef * policy.entropy()[valid].mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(expected.parameters(), config.max_grad_norm)
    torch.optim.Adam(expected.parameters(), 0.01, eps=config.epsilon).step()
    A2C(model, OBS, ACTIONS, config, device="cpu").update(batch_from(fields, ACTIONS), lambda: None)
    for got, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=5e-5)
