"""Custom models: plain modules are wrapped, and what is wrong is named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from sampler import Sampler, SamplerConfig, SequenceBatch
from sampler.errors import ConfigError
from sampler.models import as_policy_model, make_model, model_outputs
from sampler.models.protocol import RESERVED

OBSERVATIONS = spaces.Box(-1.0, 1.0, (4,), np.float32)
ACTIONS = spaces.Discrete(3)


class Plain(nn.Module):
    """obs -> (logits, values), with values of a chosen shape."""

    def __init__(self, logits: int = 3, values_rank: int = 1) -> None:
        super().__init__()
        self.policy, self.value = nn.Linear(4, logits), nn.Linear(4, 1)
        self.values_rank = values_rank

    def forward(self, obs):
        values = self.value(obs)
        return self.policy(obs), values if self.values_rank == 2 else values.squeeze(-1)


class Returning(nn.Module):
    """A plain module that returns a fixed value."""

    def __init__(self, value) -> None:
        super().__init__()
        self.fixed = value

    def forward(self, obs):
        return self.fixed


class Follower(nn.Module):
    """Follows the protocol, returning given outputs and a state of a given shape."""

    inputs: tuple[str, ...] = ("obs",)

    def __init__(self, outputs, state=(3, 2), initial=(3, 2)) -> None:
        super().__init__()
        self.outputs, self.state, self.initial = outputs, state, initial

    def initial_state(self, n):
        return torch.zeros(self.initial)

    def step(self, obs, state, is_first):
        return self.outputs, torch.zeros(self.state)

    def unroll(self, obs, state, is_first):
        raise NotImplementedError


def good(**changes):
    return {"logits": torch.zeros(3, 3), "values": torch.zeros(3), **changes}


@pytest.mark.parametrize("values_rank", [1, 2])
def test_a_plain_module_is_wrapped(values_rank):
    module = Plain(values_rank=values_rank)
    model = as_policy_model(module)
    assert model_outputs(model, OBSERVATIONS, ACTIONS) == {"logits": (3,), "values": ()}
    obs, state = torch.randn(2, 5, 4), model.initial_state(2)
    assert state.shape == (2, 0)
    outputs, after = model.unroll(obs, state, torch.zeros(2, 5).bool())
    assert after is state
    torch.testing.assert_close(outputs["logits"], module.policy(obs))
    torch.testing.assert_close(outputs["values"], module.value(obs).squeeze(-1))
    step, _ = model.step(obs[:, 0], state, torch.zeros(2).bool())
    torch.testing.assert_close(step["values"], outputs["values"][:, 0])


def test_plain_modules_may_return_low_precision():
    outputs = torch.zeros(3, 3, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.bfloat16)
    model = as_policy_model(Returning(outputs))
    assert model_outputs(model, OBSERVATIONS, ACTIONS) == {"logits": (3,), "values": ()}


def test_plain_modules_get_nested_observations_in_their_own_dtype():
    space = spaces.Dict({"image": spaces.Box(0, 255, (2, 2), np.uint8), "n": spaces.Discrete(2)})
    seen = {}

    class Nested(nn.Module):
        def forward(self, obs):
            seen.update({key: (value.dtype, tuple(value.shape)) for key, value in obs.items()})
            return torch.zeros(len(obs["n"]), 3), torch.zeros(len(obs["n"]))

    model = as_policy_model(Nested())
    model_outputs(model, space, ACTIONS)
    assert seen == {"image": (torch.uint8, (3, 2, 2)), "n": (torch.int64, (3,))}
    obs = {"image": torch.zeros(2, 4, 2, 2).byte(), "n": torch.zeros(2, 4).long()}
    model.unroll(obs, model.initial_state(2), torch.zeros(2, 4).bool())
    assert seen["image"] == (torch.uint8, (8, 2, 2))


def test_models_that_follow_the_protocol_stay_as_they_are():
    model = make_model(OBSERVATIONS, ACTIONS)
    assert as_policy_model(model) is model


def test_checking_leaves_the_model_as_it_was():
    model = as_policy_model(nn.Sequential(nn.BatchNorm1d(4), Plain()))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model_outputs(model, OBSERVATIONS, ACTIONS)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Plain(logits=4), r"'logits' has shape \[3, 4\] .* expected \[3, 3\] .*Discrete\(3\)"),
        (Returning(torch.zeros(3, 3)), r"returned float32 \[3, 3\]; return \(logits, values\)"),
        (Returning((torch.zeros(3, 3), None)), "returned a NoneType as values"),
        (Returning((torch.zeros(3, 3), torch.zeros(3, 2))), r"'values' has shape \[3, 2\]"),
        (Returning((torch.zeros(2, 3), torch.zeros(3))), r"'logits' is float32 \[2, 3\] for 3"),
        (Follower(good(), state=(3, 4)), r"\[3, 4\] as its state; return float32 \[3, 2\]"),
        (Follower(good(), initial=(2, 2)), r"initial_state\(3\) returned float32 \[2, 2\]"),
        (Follower(good(values=torch.zeros(3).double())), r"'values' is float64 \[3\]"),
        (Follower(good(extra=1.0)), "'extra' is a float"),
        (Follower(good(log_probs=torch.zeros(3, 2))), "not hold an output of the name 'log_probs'"),
        (Follower(good(to=torch.zeros(3))), "not hold an output of the name 'to', which it uses"),
        (Follower(good(spec=torch.zeros(3))), "not hold an output of the name 'spec'"),
        (Follower(good(is_first=torch.zeros(3))), "not hold an output of the name 'is_first'"),
        (Follower(good(_hidden=torch.zeros(3))), "not hold an output of the name '_hidden'"),
        (Follower({"logits": torch.zeros(3, 3)}), "no output 'values'"),
        (Follower({"values": torch.zeros(3)}), "hold no policy"),
        (Follower([]), "return \\(outputs dict, state\\)"),
        (Follower({"q_values": torch.zeros(3, 2)}), r"'q_values' has shape \[3, 2\]"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_wrong_models_are_named_with_what_was_expected(model, message):
    with pytest.raises(ConfigError, match=message) as error:
        model_outputs(as_policy_model(model), OBSERVATIONS, ACTIONS)
    assert "\n" not in str(error.value)


def test_q_values_need_discrete_actions():
    with pytest.raises(ConfigError, match="Q-values need Discrete actions"):
        model_outputs(Follower({"q_values": torch.zeros(3, 2)}), OBSERVATIONS, OBSERVATIONS)


def test_unknown_inputs_are_refused():
    model = Follower(good())
    model.inputs = ("obs", "weather")
    with pytest.raises(ConfigError, match=r"inputs=.*must hold 'obs'"):
        model_outputs(model, OBSERVATIONS, ACTIONS)


def test_what_is_no_model_is_refused():
    with pytest.raises(ConfigError, match="the model is a function"):
        as_policy_model(good)
    half = nn.Linear(4, 3)
    half.step = half.forward
    with pytest.raises(ConfigError, match="Linear has no initial_state and no unroll"):
        as_policy_model(half)


def test_no_output_may_have_the_name_of_what_a_batch_already_has():
    attributes = {name for name in dir(SequenceBatch) if not name.startswith("_")}
    with Sampler(SamplerConfig(env="CartPole-v1", workers=1, batch=8, serial=True)) as sampler:
        fields = set(sampler.empty_batch().fields)
    outputs = {"logits", "values"}
    assert {n for n in attributes | fields if not n.startswith("previous_")} - outputs <= RESERVED


def test_the_former_name_of_update_normalizer_is_refused():
    model = Follower(good())
    model.update_normaliser = lambda obs, mask: None
    with pytest.raises(ConfigError, match="update_normaliser would not be called: rename it"):
        as_policy_model(model)
