"""Where low precision is used, and how weights get into converted models."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sampler.errors import ConfigError
from sampler.models import load_weights, make_model, make_q_model

FRAMES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)


@pytest.mark.parametrize("encoder", ["nature", "impala"])
def test_low_precision_is_for_image_encoders_alone(build, samples, encoder):
    model = build(make_model, FRAMES, spaces.Discrete(3), encoder=encoder, core="lstm")
    exact = copy.deepcopy(model)
    model.set_inference_precision(torch.bfloat16)
    low = {name for name, p in model.named_parameters() if p.dtype == torch.bfloat16}
    assert low
    assert all(name.startswith("body.encoder.images") for name in low)
    frames, is_first = samples(FRAMES, 4), torch.zeros(4).bool()
    outputs, state = model.step(frames, model.initial_state(4), is_first)
    expected, _ = exact.step(frames, model.initial_state(4), is_first)
    assert state.dtype == torch.float32
    for key, value in outputs.items():
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected[key], rtol=0.05, atol=0.05)


def test_autocast_computes_what_converted_weights_do(build, samples):
    """The learner's forward pass and the policy worker's then differ by little but rounding."""
    model = build(make_model, FRAMES, spaces.Discrete(3), core="lstm")
    converted = copy.deepcopy(model)
    converted.set_inference_precision(torch.bfloat16)
    frames, state, is_first = samples(FRAMES, 2), model.initial_state(2), torch.zeros(2).bool()
    with torch.autocast("cpu", torch.bfloat16):
        learner, _ = model.unroll(frames[:, None], state, is_first[:, None])
    worker, _ = converted.step(frames, state, is_first)
    for key, value in worker.items():
        assert learner[key].dtype == torch.float32
        torch.testing.assert_close(learner[key][:, 0], value, rtol=0.02, atol=2e-3)


def test_vectors_are_float32_under_autocast(build, samples):
    model = build(make_model, VECTOR, spaces.Discrete(3), core="gru")
    obs, state, is_first = samples(VECTOR, 2, 3), model.initial_state(2), torch.zeros(2, 3).bool()
    expected, _ = model.unroll(obs, state, is_first)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, _ = model.unroll(obs, state, is_first)
    assert all(torch.equal(outputs[key], expected[key]) for key in expected)


def test_float32_weights_load_into_a_converted_model(build):
    source = build(make_model, FRAMES, spaces.Discrete(3), seed=1)
    model = build(make_model, FRAMES, spaces.Discrete(3), seed=2)
    model.set_inference_precision(torch.bfloat16)
    before = {name: p.dtype for name, p in model.named_parameters()}
    state = {name: tensor.contiguous() for name, tensor in source.state_dict().items()}
    load_weights(model, state)
    source.set_inference_precision(torch.bfloat16)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == before[name]
        assert torch.equal(parameter, source.get_parameter(name))


def test_weights_that_do_not_fit_are_refused(build):
    model = build(make_model, VECTOR, spaces.Discrete(3))
    state = model.state_dict()
    with pytest.raises(
        ConfigError, match=r"policy\.parts\.0\.bias has shape \[4\], expected \[3\]"
    ):
        load_weights(model, {**state, "policy.parts.0.bias": torch.zeros(4)})
    del state["value.linear.bias"]
    with pytest.raises(ConfigError, match=r"value\.linear\.bias differs"):
        load_weights(model, state)


def test_models_survive_pickling_and_keep_their_inputs(build, samples):
    model = build(make_q_model, VECTOR, spaces.Discrete(3), core="lstm", head_size=8)
    again = pickle.loads(pickle.dumps(model))
    assert again.inputs == model.inputs
    inputs = {
        "obs": samples(VECTOR, 2),
        "previous_actions": torch.tensor([0, 2]),
        "previous_rewards": torch.tensor([1.0, -1.0]),
    }
    arguments = (inputs, model.initial_state(2), torch.zeros(2).bool())
    assert torch.equal(again.step(*arguments)[0]["q_values"], model.step(*arguments)[0]["q_values"])
