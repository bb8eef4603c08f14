"""Weights by name: of compiled models, and of earlier releases."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from sampler import Sampler, SamplerConfig
from sampler.learner.algorithms.ppo import PPO, PPOConfig
from sampler.learner.functional import evaluate_actions
from sampler.models import ModelConfig, load_weights, make_model

BOX = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)
NORMALIZED = ModelConfig(hidden=(4,), normalize_observations=True)
FORMER = (
    *("observations.normaliser.mean", "observations.normaliser.var"),
    *("observations.normaliser.count", "body.encoder.vector.0.weight"),
    *("body.encoder.vector.0.bias", "value_body.encoder.vector.0.weight"),
    *("value_body.encoder.vector.0.bias", "policy.parts.0.log_std"),
    *("policy.parts.0.linear.weight", "policy.parts.0.linear.bias"),
    *("value.linear.weight", "value.linear.bias"),
)
"""The names in a checkpoint from before `normaliser` was spelt `normalizer`."""


def model_of(seed):
    torch.manual_seed(seed)
    model = make_model(BOX, ACTIONS, NORMALIZED)
    model.update_normalizer(torch.randn(20, 3) + seed)
    return model


def formerly(model):
    """Its weights under the names of the former release."""
    assert len(FORMER) == len(model.state_dict())
    return dict(zip(FORMER, model.state_dict().values(), strict=True))


def assert_equal(model, other):
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_weights_of_the_former_spelling_are_loaded():
    old, new = model_of(1), model_of(2)
    load_weights(new, formerly(old))
    assert_equal(new, old)


def test_a_learner_goes_on_from_a_checkpoint_of_the_former_spelling():
    old, new = (PPO(model_of(seed), BOX, ACTIONS, PPOConfig(), "cpu") for seed in (1, 2))
    state = old.state_dict()
    state["model"] = formerly(old.model)
    new.load_state_dict(state)
    assert_equal(new.model, old.model)


class OwnSpelling(nn.Module):
    def __init__(self):
        super().__init__()
        self.observations = nn.ModuleDict({"normaliser": nn.Linear(2, 2)})


def test_a_model_that_uses_the_former_spelling_itself_keeps_it():
    old, new = OwnSpelling(), OwnSpelling()
    load_weights(new, old.state_dict())
    assert_equal(new, old)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, obs):
        outputs = self.layer(obs)
        return outputs[..., :2], outputs[..., 2]


@pytest.mark.parametrize("make", [partial(make_model, config=ModelConfig()), lambda *_: Plain()])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_factory_may_compile_its_model_and_either_form_is_published(make, compiled):
    def factory(observations, actions):
        return torch.compile(make(observations, actions), backend="eager")

    config = SamplerConfig(
        env="CartPole-v1", workers=1, batch=8, serial=True, device="cpu", precision="float32"
    )
    with Sampler(config, factory) as sampler:
        assert sampler.publish(sampler.model) == 1
        own = make(sampler.observation_space, sampler.action_space)
        published = torch.compile(own, backend="eager") if compiled else own
        assert sampler.publish(published) == 2
        batch = sampler.get_batch().to("cpu")
        assert (batch.policy_version == 2).all()
        with torch.no_grad():
            log_probs, _, values = evaluate_actions(own, batch)
        torch.testing.assert_close(batch.values[batch.mask], values[:, :-1][batch.mask])
        torch.testing.assert_close(batch.log_probs[batch.mask], log_probs[batch.mask])
