"""`evaluate_actions` against a loop over rows and steps with torch's own distributions."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from helpers.q_learning import Noise
from helpers.wave import Wave
from torch import distributions as reference
from torch import nn

from sampler import ConfigError, Sampler, SamplerConfig
from sampler.learner.functional import evaluate_actions
from sampler.models import ModelConfig, make_model, make_q_model

TINY = {"hidden": (8,), "core_size": 6}


class Boxed(Wave):
    """`Wave` with actions of two numbers, which lie between bounds far from -1 and 1."""

    action_space = spaces.Box(np.float32([-2, 0]), np.float32([2, 10]), dtype=np.float32)

    def step(self, action):
        return super().step(action[0] > 0)


def sampler_of(env, model, **changes):
    settings = {
        "env": env,
        "workers": 1,
        "envs_per_worker": 4,
        "rollout": 8,
        "batch": 4,
        "serial": True,
        "device": "cpu",
        "precision": "float32",
        **changes,
    }
    return Sampler(SamplerConfig(**settings), model)


def categorical(logits, mask, start):
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf)
    distribution = reference.Categorical(logits=logits)
    return (lambda action: distribution.log_prob(action - start)), distribution.entropy()


def gaussian(logits, space):
    """Means and logarithms of deviations in units of half the range, from its centre."""
    mean, log_std = logits.chunk(2)
    centre, scale = torch.tensor([[0.0, 5.0], [2.0, 5.0]])
    normal = reference.Normal(centre + scale * mean, scale * log_std.exp())
    distribution = reference.Independent(normal, 1)
    return distribution.log_prob, distribution.entropy()


@torch.no_grad()
def naive(model, batch, distribution_of):
    """Row by row and step by step."""
    rows, steps = batch.mask.shape
    log_probs, entropy, values = np.zeros((3, rows, steps + 1), np.float32)
    for row in range(rows):
        state = model.initial_state(1) if batch.rnn_state is None else batch.rnn_state[row][None]
        for t in range(steps + 1):
            obs = batch.obs[row, t][None]
            if "previous_rewards" in model.inputs:
                obs = {
                    "obs": obs,
                    "previous_actions": batch.previous_actions[row, t][None],
                    "previous_rewards": batch.previous_rewards[row, t][None],
                }
            outputs, state = model.step(obs, state, batch.is_first[row, t][None])
            values[row, t] = outputs["values"]
            if t < steps and batch.mask[row, t]:
                mask = None if batch.action_mask is None else batch.action_mask[row, t]
                log_prob, entropy[row, t] = distribution_of(outputs["logits"][0], mask)
                log_probs[row, t] = log_prob(batch.actions[row, t])
    return log_probs[:, :steps], entropy[:, :steps], values


CASES = {
    "plain": (Wave, {}, lambda logits, mask: categorical(logits, mask, 0)),
    "masked, with memory and previous inputs": (
        partial(Noise, masked=True),
        {"core": "lstm", "previous_inputs": True},
        lambda logits, mask: categorical(logits, mask, 5),
    ),
    "continuous": (Boxed, {"core": "gru"}, lambda logits, mask: gaussian(logits, Boxed)),
}


@pytest.mark.parametrize("name", CASES)
def test_all_that_actions_were_chosen_with_is_used(name):
    env, settings, distribution_of = CASES[name]
    make = partial(make_model, config=ModelConfig(**TINY, **settings))
    with sampler_of(env, make, overlap=3) as sampler:
        for parameter in sampler.model.parameters():  # far from a uniform policy
            parameter.data += 0.5 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(1)
            )
        sampler.publish(sampler.model)
        for _ in range(5):  # rows from the middle of episodes, too
            batch = sampler.get_batch().to("cpu")
        result = evaluate_actions(sampler.model, batch)
        expected = naive(sampler.model, batch, distribution_of)
        assert not batch.mask.all()
        for ours, theirs in zip(result, expected, strict=True):
            assert ours.requires_grad
            np.testing.assert_allclose(ours.detach(), theirs, rtol=1e-4, atol=1e-4)
        stored = torch.where(batch.mask, batch.log_probs, 0.0)
        torch.testing.assert_close(result.log_probs.detach(), stored, rtol=1e-4, atol=1e-4)


def test_rows_that_were_given_up_may_hold_anything():
    with sampler_of(Wave, partial(make_model, config=ModelConfig(**TINY))) as sampler:
        batch = sampler.get_batch()
        expected = evaluate_actions(sampler.model, batch.to("cpu"))
        batch.fields["mask"] = batch.mask.copy()
        batch.mask[1] = False
        batch["obs"][1] = np.nan
        result = evaluate_actions(sampler.model, batch.to("cpu"))
        kept = [0, 2, 3]
        for ours, theirs in zip(result, expected, strict=True):
            assert not ours[1].any()
            torch.testing.assert_close(ours[kept], theirs[kept])
        sum(part.sum() for part in result).backward()
        assert all(p.grad.isfinite().all() for p in sampler.model.parameters())


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 4)

    def forward(self, obs):
        outputs = self.layer(obs)
        return outputs[..., :3], outputs[..., 3]


def test_a_plain_module_is_taken_as_it_is():
    with sampler_of(Wave, lambda observations, actions: Plain()) as sampler:
        batch = sampler.get_batch().to("cpu")
        own = sampler.model.module
        assert isinstance(own, Plain)
        result = evaluate_actions(own, batch)
        torch.testing.assert_close(result.values, own(batch.obs)[1])


def test_what_cannot_be_evaluated_is_refused():
    with sampler_of(Wave, make_model) as sampler:
        batch = sampler.get_batch()
        with pytest.raises(ConfigError, match=r"batch\.to\(device\)"):
            evaluate_actions(sampler.model, batch)
    with sampler_of(Wave, make_q_model) as sampler:
        batch = sampler.get_batch().to("cpu")
        with pytest.raises(ConfigError, match="QNetwork gives q_values; actions are evaluated by"):
            evaluate_actions(sampler.model, batch)


def test_an_action_space_of_ones_own_may_be_given():
    with sampler_of(Wave, make_model) as sampler:
        batch = sampler.get_batch().to("cpu")
        default = evaluate_actions(sampler.model, batch)
        given = evaluate_actions(sampler.model, batch, gym.spaces.Discrete(3))
        assert torch.equal(default.log_probs, given.log_probs)
