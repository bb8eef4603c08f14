"""The first batch's log-probabilities against those that the model computes again."""

from __future__ import annotations

import logging
from functools import partial

import pytest
import torch
from helpers.models import History, make_history
from helpers.q_learning import Noise
from helpers.wave import Wave

from sampler import Sampler, SamplerConfig
from sampler.models import ModelConfig, make_model, make_q_model

TINY = ModelConfig(hidden=(8,), core="lstm", core_size=6)


def first_batch(model, env=Wave, before=lambda sampler: None, **changes):
    settings = {"workers": 1, "envs_per_worker": 4, "rollout": 8, "batch": 4, "serial": True}
    config = SamplerConfig(env=env, device="cpu", **{**settings, **changes})
    with Sampler(config, model) as sampler:
        before(sampler)
        sampler.get_batch()
        sampler.get_batch()
        return sampler.model


@pytest.fixture
def warned(caplog):
    """The warnings so far."""
    return lambda: [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("env", [Wave, partial(Noise, masked=True), "Pendulum-v1"])
def test_models_that_are_right_raise_no_warning(env, precision, warned):
    model = first_batch(partial(make_model, config=TINY), env, precision=precision)
    assert model.training
    first_batch(make_q_model, Wave)
    assert warned() == []


class WrongUnroll(History):
    """Forgets its state in every step of an unroll."""

    def unroll(self, obs, state, is_first):
        return super().unroll(obs, state, torch.ones_like(is_first))


def test_an_unroll_that_differs_from_step_is_named(warned):
    first_batch(lambda *spaces: WrongUnroll(), "fastrl/Counter-v0")
    (message,) = warned()
    assert "WrongUnroll: log-probabilities that a learner computes for the first batch" in message
    assert "unroll() does not return what step() returns" in message


class Restless(History):
    """Its outputs depend on how often it was called."""

    calls = 0

    def step(self, obs, state, is_first):
        Restless.calls += 1
        outputs, state = super().step(obs, state, is_first)
        return {**outputs, "logits": outputs["logits"].roll(Restless.calls // 3, -1)}, state


def test_a_step_that_depends_on_more_than_its_inputs_is_named(warned):
    first_batch(lambda *spaces: Restless(), "fastrl/Counter-v0")
    (message,) = warned()
    assert "step() does not return the same for the same inputs" in message


def test_weights_that_were_not_published_are_named(warned):
    def change(sampler):
        for parameter in sampler.model.parameters():
            parameter.data += torch.randn(parameter.shape)

    first_batch(make_model, before=change)
    (message,) = warned()
    assert "call sampler.publish(model) after changing them" in message


def test_a_model_that_only_steps_is_left_alone(warned):
    class Steps(History):
        def unroll(self, obs, state, is_first):
            raise NotImplementedError

    first_batch(lambda *spaces: Steps(), "fastrl/Counter-v0")
    first_batch(make_history, "fastrl/Counter-v0")
    assert warned() == []
