"""Whatever a model does wrong ends in one line that says what, as early as it can be known."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from helpers.faults import GOOD, Faulty, hang, leave_quietly
from helpers.models import make_history
from helpers.processes import PATIENCE, workers_of
from helpers.wave import Wave
from torch import nn

from sampler import ConfigError, EnvError, FastrlError, ModelError, Sampler, SamplerConfig
from sampler.models import make_model, make_q_model

SERIAL = SamplerConfig(
    env=Wave,
    workers=2,
    envs_per_worker=2,
    groups=1,
    rollout=8,
    batch=2,
    precision="float32",
    max_restarts=0,
    serial=True,
)
PROCESSES = replace(SERIAL, serial=False)


class Model(nn.Module):
    """Follows the protocol, but for what is given."""

    def __init__(self, **changes):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.changes = changes

    def initial_state(self, n):
        return self.changes.get("state", torch.zeros(n, 2))

    def step(self, obs, state, is_first):
        n = len(is_first)
        outputs = {"logits": self.scale * torch.zeros(n, 3), "values": torch.zeros(n)}
        outputs |= {k: f(n) for k, f in self.changes.get("outputs", {}).items()}
        for name in self.changes.get("without", ()):
            del outputs[name]
        return outputs, self.changes.get("new_state", state)

    def unroll(self, obs, state, is_first):
        raise NotImplementedError


def factory(**changes):
    return lambda observation_space, action_space: Model(**changes)


def plain(module):
    return lambda observation_space, action_space: module


class NoStep(nn.Module):
    def initial_state(self, n):
        return torch.zeros(n, 0)

    def unroll(self, obs, state, is_first):
        return {}, state


class OneOutput(nn.Linear):
    def __init__(self):
        super().__init__(5, 3)


REFUSED = {
    "an instance": (Model(), "model is a Model, not a factory; pass a function make_model"),
    "not callable": ("resnet", "model is a str, not a factory; pass a function make_model"),
    "no module": (plain(3), "the model is a int; make a torch.nn.Module"),
    "half the protocol": (plain(NoStep()), "NoStep has no step; a model needs initial_state"),
    "one output": (plain(OneOutput()), r"OneOutput returned float32 \[3, 3\]; return \(logits, v"),
    "wrong number of logits": (
        factory(outputs={"logits": lambda n: torch.zeros(n, 4)}),
        r"Model: output 'logits' has shape \[3, 4\] for 3 observations; expected \[3, 3\]",
    ),
    "values with an axis too many": (
        factory(outputs={"values": lambda n: torch.zeros(n, 1)}),
        r"Model: output 'values' has shape \[3, 1\] for 3 observations; expected \[3\]",
    ),
    "no values": (factory(without=["values"]), r"there is no output 'values'; expected \[3\]"),
    "no policy": (factory(without=["logits"]), r"outputs \['values'\] hold no policy; return"),
    "logits of another dtype": (
        factory(outputs={"logits": lambda n: torch.zeros(n, 3, dtype=torch.float64)}),
        r"output 'logits' is float64 \[3, 3\] for 3 observations; expected float32 \[3, \.\.\.\]",
    ),
    "output that is no tensor": (
        factory(outputs={"values": lambda n: np.zeros(n)}),
        "output 'values' is a ndarray for 3 observations; expected float32",
    ),
    "state without lanes": (
        factory(state=torch.zeros(2)),
        r"Model.initial_state\(3\) returned float32 \[2\]; return one float32 tensor \[3, ...\]",
    ),
    "state that changes its shape": (
        factory(new_state=torch.zeros(3, 5)),
        r"Model.step returned float32 \[3, 5\] as its state; return float32 \[3, 2\] as",
    ),
    "output named like a field": (
        factory(outputs={"rewards": lambda n: torch.zeros(n)}),
        "a batch could not hold an output of the name 'rewards', which it uses itself or",
    ),
}


@pytest.mark.parametrize(("model", "message"), REFUSED.values(), ids=REFUSED)
def test_models_that_are_refused_at_the_start(model, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Sampler(SERIAL, model)
    assert "\n" not in str(caught.value)


def sample(sampler, batches=20):
    for _ in range(batches):
        sampler.get_batch(timeout=PATIENCE)


def nan_after_publishing(config):
    with Sampler(config) as sampler:
        sample(sampler, 2)
        with torch.no_grad():
            for parameter in sampler.model.parameters():
                parameter.fill_(torch.nan)
        sampler.publish(sampler.model)
        with pytest.raises(ModelError) as caught:
            sample(sampler, 100)
    return str(caught.value)


MESSAGE = (
    "lane {}: the model's output 'logits' is NaN (weights of version 1); publish finite weights, "
    "and check the model's range"
)


def test_a_model_that_becomes_nan():
    assert nan_after_publishing(SERIAL) == MESSAGE.format(0)


@pytest.mark.parametrize(
    ("policy_workers", "place"),
    [(1, "policy worker 0"), pytest.param(0, "rollout worker ", marks=pytest.mark.slow)],
)
def test_a_model_that_becomes_nan_in_processes_is_not_tried_again(policy_workers, place):
    config = replace(PROCESSES, max_restarts=100, policy_workers=policy_workers)
    message = nan_after_publishing(config)
    assert message.startswith(place)
    assert message.endswith(MESSAGE.partition("{}")[2])
    assert workers_of() == []


def test_an_observation_that_is_not_a_number_is_the_environments_fault():
    space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    wrong = np.array([0, np.nan], np.float32)

    def env():
        return Faulty(space=space, observe=lambda t: wrong if t == 3 else GOOD)

    message = "lane 0: the environment's obs is not finite; correct it"
    with Sampler(replace(SERIAL, env=env)) as sampler, pytest.raises(EnvError, match=message):
        sample(sampler)


class RaisesLater(Model):
    """Fails when it runs with published weights."""

    def step(self, obs, state, is_first):
        if self.scale > 1:
            raise IndexError("no such\nhead")
        return super().step(obs, state, is_first)


@pytest.mark.slow
def test_a_model_that_raises_in_its_worker():
    with Sampler(PROCESSES, lambda o, a: RaisesLater()) as sampler:
        sampler.get_batch(timeout=PATIENCE)
        with torch.no_grad():
            sampler.model.scale += 1
        sampler.publish(sampler.model)
        with pytest.raises(
            FastrlError, match="policy worker 0: IndexError: no such head"
        ) as caught:
            sample(sampler, 100)
        assert "IndexError" in caught.value.traceback_text


class LeavesLater(Model):
    """Ends its process when it runs with published weights."""

    def step(self, obs, state, is_first):
        if self.scale > 1:
            leave_quietly()
        return super().step(obs, state, is_first)


def test_a_model_that_ends_its_worker():
    with Sampler(PROCESSES, lambda o, a: LeavesLater()) as sampler:
        sampler.get_batch(timeout=PATIENCE)
        with torch.no_grad():
            sampler.model.scale += 1
        sampler.publish(sampler.model)
        message = r"policy worker 0 ended unexpectedly while choosing actions \(exit code 3\)"
        with pytest.raises(FastrlError, match=message):
            sample(sampler, 100)


class HangsLater(Model):
    """Never answers when it runs with published weights."""

    def step(self, obs, state, is_first):
        if self.scale > 1:
            hang()
        return super().step(obs, state, is_first)


@pytest.mark.slow
@pytest.mark.parametrize(("policy_workers", "place"), [(1, "policy"), (0, "rollout")])
def test_a_model_that_hangs_in_its_worker(policy_workers, place):
    config = replace(PROCESSES, policy_workers=policy_workers, step_timeout=1.0)
    message = f"{place} worker .*: no inference was finished within step_timeout=1 s; raise it, or"
    with Sampler(config, lambda o, a: HangsLater()) as sampler:
        sampler.get_batch(timeout=PATIENCE)
        with torch.no_grad():
            sampler.model.scale += 1
        sampler.publish(sampler.model)
        with pytest.raises(FastrlError, match=message):
            sample(sampler, 100)


def test_publishing_a_model_of_other_parameters():
    with Sampler(SERIAL) as sampler:
        with pytest.raises(ConfigError, match=r"the published model differs .* in '\S+'"):
            sampler.publish(Model())
        assert sampler.version == 0
        wider = make_model(spaces.Box(-1.0, 1.0, (6,), np.float32), sampler.action_space)
        with pytest.raises(ConfigError, match=r"has shape \[64, 6\], expected \[64, 5\]"):
            sampler.publish(wider)
        assert sampler.version == 0
        assert sampler.publish(sampler.model) == 1
        sample(sampler, 5)


def test_a_model_without_parameters_works():
    class Uniform(nn.Module):
        def forward(self, obs):
            return torch.zeros(len(obs), 3), torch.zeros(len(obs))

    with Sampler(SERIAL, lambda o, a: Uniform()) as sampler:
        np.testing.assert_allclose(sampler.get_batch().log_probs, -np.log(3), rtol=1e-6)
        assert sampler.publish(sampler.model) == 1


def test_a_factory_that_raises_shows_its_own_error():
    with pytest.raises(ZeroDivisionError):
        Sampler(SERIAL, lambda o, a: 1 / 0)


def test_a_model_that_cannot_be_sent():
    lock = threading.Lock()

    def make(observation_space, action_space):
        with lock:
            return Model()

    with pytest.raises(ConfigError, match="the model cannot be sent to worker processes"):
        Sampler(PROCESSES, make)
    assert workers_of() == []


def test_epsilons_are_one_or_one_for_each_lane():
    with Sampler(SERIAL, make_q_model) as sampler:
        sampler.set_epsilon(0.5)
        sampler.set_epsilon(np.full(4, 0.1))
        for wrong in (1.5, -0.1, np.nan, np.full(3, 0.1), "much"):
            with pytest.raises(ConfigError, match="epsilon"):
                sampler.set_epsilon(wrong)


def test_recurrent_models_need_no_name_for_their_state():
    config = replace(SERIAL, env="fastrl/Counter-v0")
    with Sampler(config, make_history) as sampler:
        assert sampler.get_batch().rnn_state.shape == (2, 2)
