"""Default models: every space, the protocol, precision, initialisation and normalization."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sampler.errors import ConfigError
from sampler.models import (
    ModelConfig,
    distribution_for,
    load_weights,
    make_distribution,
    make_model,
    make_q_model,
    model_outputs,
)
from sampler.models.layers import weights_to_be_loaded
from sampler.spaces import map_leaves

FRAMES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)
NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (40, 48, 3), np.uint8),
        "map": spaces.Box(0, 1, (2, 8, 8), np.float32),
        "body": spaces.Tuple(
            [spaces.Box(-1, 1, (2, 2), np.float64), spaces.MultiBinary(3), spaces.Discrete(3)]
        ),
        "level": spaces.MultiDiscrete([[2, 3]], start=[[1, 0]]),
        "time": spaces.Box(0, 100, (), np.int32),
    }
)
OBSERVATIONS = {
    "vector": VECTOR,
    "scalar": spaces.Box(-1, 1, (), np.float32),
    "matrix": spaces.Box(-1, 1, (3, 5), np.float64),
    "bytes": spaces.Box(0, 255, (128,), np.uint8),
    "frames": FRAMES,
    "frame": spaces.Box(0, 255, (84, 84), np.uint8),
    "rgb": spaces.Box(0, 255, (60, 50, 3), np.uint8),
    "rgb_stack": spaces.Box(0, 255, (2, 40, 40, 3), np.uint8),
    "grid": spaces.Box(0, 1, (10, 10, 4), bool),
    "discrete": spaces.Discrete(5, start=-1),
    "multidiscrete": spaces.MultiDiscrete([2, 4]),
    "multibinary": spaces.MultiBinary((2, 2)),
    "nested": NESTED,
}
ACTIONS = {
    "discrete": spaces.Discrete(3, start=1),
    "multidiscrete": spaces.MultiDiscrete([2, 4]),
    "multibinary": spaces.MultiBinary(3),
    "box": spaces.Box(-2, 2, (2,), np.float32),
    "nested": spaces.Dict(
        {"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Box(-1, 1, (1,), np.float32)])}
    ),
}


def model_inputs(samples, model, observations, actions, *shape: int):
    obs = samples(observations, *shape)
    if model.inputs == ("obs",):
        return obs
    rewards = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    return {
        "obs": obs,
        "previous_actions": samples(actions, *shape),
        "previous_rewards": rewards,
    }


@pytest.mark.parametrize("name", OBSERVATIONS)
@pytest.mark.parametrize("core", [None, "lstm"])
def test_every_observation_space(build, samples, name, core):
    space, actions = OBSERVATIONS[name], ACTIONS["discrete"]
    model = build(make_model, space, actions, core=core, normalize_observations=True)
    assert model_outputs(model, space, actions) == {"logits": (3,), "values": ()}
    check_unroll_equals_stepping(samples, model, space, actions)


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("changes", [{}, {"core": "gru", "previous_inputs": True}], ids=str)
def test_every_action_space(build, samples, name, changes):
    space = ACTIONS[name]
    model = build(make_model, VECTOR, space, **changes)
    size = make_distribution(space).num_parameters
    assert model_outputs(model, VECTOR, space) == {"logits": (size,), "values": ()}
    check_unroll_equals_stepping(samples, model, VECTOR, space)


@pytest.mark.parametrize("core", [None, "lstm", "gru"])
@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("observations", ["vector", "rgb"])
def test_q_networks(build, samples, core, dueling, observations):
    space, actions = OBSERVATIONS[observations], ACTIONS["discrete"]
    model = build(make_q_model, space, actions, core=core, dueling=dueling, head_size=8)
    assert model_outputs(model, space, actions) == {"q_values": (3,)}
    expected = ("obs", "previous_actions", "previous_rewards") if core else ("obs",)
    assert model.inputs == expected
    check_unroll_equals_stepping(samples, model, space, actions)


def check_unroll_equals_stepping(samples, model, observations, actions, rows=3, steps=4):
    obs = model_inputs(samples, model, observations, actions, rows, steps)
    is_first = torch.rand(rows, steps, generator=torch.Generator().manual_seed(0)) < 0.3
    state = torch.randn_like(model.initial_state(rows))
    outputs, final = model.unroll(obs, state, is_first)
    for t in range(steps):
        now, state = model.step(map_leaves(lambda x, t=t: x[:, t], obs), state, is_first[:, t])
        for key, value in now.items():
            assert value.dtype == outputs[key].dtype == torch.float32
            torch.testing.assert_close(outputs[key][:, t], value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(final, state, rtol=1e-5, atol=1e-5)


def test_default_sizes_for_atari_are_the_published_ones():
    model = make_q_model(FRAMES, spaces.Discrete(4), ModelConfig(core="lstm"))
    assert model.state_shape == (2, 512)
    assert model.body.core.rnn.input_size == 512 + 4 + 1
    assert model.q.value[0].out_features == 512
    policy = make_model(FRAMES, spaces.Discrete(4))
    shapes = [tuple(p.shape) for name, p in policy.named_parameters() if "weight" in name]
    nature = [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)]
    assert shapes == [*nature, (4, 512), (1, 512)]


@pytest.mark.parametrize("core", [None, "lstm"])
def test_vectors_have_separate_networks_for_policy_and_value(samples, core):
    model = make_model(VECTOR, spaces.Discrete(2), ModelConfig(core=core))
    outputs, _ = model.step(samples(VECTOR, 3), model.initial_state(3), torch.ones(3).bool())
    outputs["values"].sum().backward()
    touched = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None}
    assert touched == {"value", "value_body"}
    shared = make_model(VECTOR, spaces.Discrete(2), ModelConfig(separate_value=False))
    assert shared.value_body is None


def test_dueling_advantages_have_mean_zero(build):
    model = build(make_q_model, VECTOR, spaces.Discrete(3), head_size=8)
    features = torch.randn(5, model.body.size)
    torch.testing.assert_close(model.q(features).mean(-1), model.q.value(features).squeeze(-1))


@pytest.mark.parametrize("encoder", ["nature", "impala"])
def test_pixels_are_scaled_by_the_weights(build, samples, encoder):
    model = build(make_model, FRAMES, spaces.Discrete(3), encoder=encoder)
    floats = spaces.Box(0, 1, (4, 84, 84), np.float32)
    other = build(make_model, floats, spaces.Discrete(3), encoder=encoder)
    other.load_state_dict(model.state_dict())
    frames, first = samples(FRAMES, 2), torch.ones(2).bool()
    expected, _ = other.step(frames.float() / 255, other.initial_state(2), first)
    outputs, _ = model.step(frames, model.initial_state(2), first)
    torch.testing.assert_close(outputs["values"], expected["values"], rtol=1e-4, atol=1e-5)


def test_channels_may_come_last(build, samples):
    first, last = (
        spaces.Box(0, 255, (3, 40, 44), np.uint8),
        spaces.Box(0, 255, (40, 44, 3), np.uint8),
    )
    model, other = (build(make_model, space, spaces.Discrete(3)) for space in (first, last))
    other.load_state_dict(model.state_dict())
    images = samples(first, 2)
    is_first = torch.ones(2).bool()
    outputs, _ = model.step(images, model.initial_state(2), is_first)
    same, _ = other.step(images.permute(0, 2, 3, 1), other.initial_state(2), is_first)
    torch.testing.assert_close(outputs, same, rtol=1e-5, atol=1e-6)


def test_choices_are_one_hot_and_other_values_all_zero(build):
    space = spaces.Tuple([spaces.Discrete(3, start=2), spaces.MultiDiscrete([2, 3], start=[0, 5])])
    model = build(make_model, space, spaces.Discrete(2))
    obs = (torch.tensor([2, 4, 0]), torch.tensor([[0, 5], [1, 7], [0, 0]]))
    _, vector = model.observations(obs)
    expected = [[1, 0, 0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0, 0, 1], [0, 0, 0, 1, 0, 0, 0, 0]]
    assert vector.tolist() == expected


def test_integers_are_scaled_and_floats_are_not(build):
    space = spaces.Tuple(
        [spaces.Box(0, 255, (2,), np.uint8), spaces.Box(-np.inf, np.inf, (1,), np.float32)]
    )
    model = build(make_model, space, spaces.Discrete(2))
    _, vector = model.observations((torch.tensor([[51, 255]]), torch.tensor([[700.0]])))
    torch.testing.assert_close(vector, torch.tensor([[700.0, 0.2, 1.0]]))


def test_previous_action_and_reward_count_but_for_the_first_step(build, samples):
    actions = spaces.Discrete(3, start=1)
    model = build(make_q_model, VECTOR, actions, core="lstm", head_size=8)
    obs, state = samples(VECTOR, 2), model.initial_state(2)

    def q_values(action: int, reward: float, first: bool):
        inputs = {
            "obs": obs,
            "previous_actions": torch.full((2,), action),
            "previous_rewards": torch.full((2,), reward),
        }
        return model.step(inputs, state, torch.full((2,), first))[0]["q_values"]

    base = q_values(1, 0.0, False)
    assert not torch.allclose(base, q_values(2, 0.0, False))
    assert not torch.allclose(base, q_values(1, 1.0, False))
    assert torch.equal(q_values(1, 0.0, True), q_values(3, -5.0, True))


def test_layers_are_orthogonal_with_the_usual_gains():
    model = make_model(VECTOR, spaces.Discrete(3), ModelConfig(hidden=(16, 16), core="gru"))

    def gain(weight):
        values = torch.linalg.svdvals(weight.flatten(1))
        torch.testing.assert_close(values, values[:1].expand_as(values), rtol=1e-4, atol=0)
        return values[0].item()

    layers = {name: p for name, p in model.named_parameters() if p.dim() == 2}
    assert gain(layers["body.encoder.vector.2.weight"]) == pytest.approx(2**0.5, rel=1e-4)
    assert gain(layers["body.core.rnn.weight_hh_l0"]) == pytest.approx(1, rel=1e-4)
    assert gain(layers["policy.parts.0.weight"]) == pytest.approx(0.01, rel=1e-4)
    assert gain(layers["value.linear.weight"]) == pytest.approx(1, rel=1e-4)
    for name, parameter in model.named_parameters():
        if "bias" in name:
            assert (parameter == 0).all()


@pytest.mark.parametrize("state_dependent_std", [True, False])
def test_gaussian_policies_begin_with_the_given_deviation(build, samples, state_dependent_std):
    changes = {"initial_log_std": -1.5, "state_dependent_std": state_dependent_std}
    model = build(make_model, VECTOR, ACTIONS["box"], **changes)
    outputs, _ = model.step(samples(VECTOR, 2), model.initial_state(2), torch.ones(2).bool())
    log_std = outputs["logits"].chunk(2, -1)[1]
    torch.testing.assert_close(log_std, torch.full((2, 2), -1.5), rtol=0, atol=0.1)


def test_bounded_actions_is_known_to_distribution_for(build):
    model = build(make_model, VECTOR, ACTIONS["box"], bounded_actions="squashed")
    actions = distribution_for(model, ACTIONS["box"])(torch.full((1, 4), 50.0)).mode()
    assert actions.abs().max() <= 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "vgg"}, "encoder='vgg' is not one of auto, nature, impala, mlp"),
        ({"core": "rnn"}, "core='rnn'"),
        ({"core_size": 0}, "core_size=0 must be a whole number of at least 1"),
        ({"hidden": (64, 0)}, "hidden="),
        ({"previous_inputs": True}, "previous_inputs=True needs a core"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**settings)


def test_networks_that_do_not_fit_are_refused(build):
    with pytest.raises(ConfigError, match="36 pixels a side, not 20x20"):
        build(
            make_model,
            spaces.Box(0, 255, (3, 20, 20), np.uint8),
            ACTIONS["discrete"],
            encoder="nature",
        )
    with pytest.raises(ConfigError, match="Q-networks need Discrete actions"):
        build(make_q_model, VECTOR, ACTIONS["box"])
    with pytest.raises(ConfigError, match="Text"):
        build(make_model, spaces.Text(3), ACTIONS["discrete"])


def test_models_whose_weights_are_loaded_afterwards_are_made_without_drawing_them(monkeypatch):
    drawn = []
    monkeypatch.setattr(torch.nn.init, "orthogonal_", lambda tensor, gain: drawn.append(gain))
    with weights_to_be_loaded():
        model = make_model(FRAMES, spaces.Discrete(4))
    assert drawn == []
    again = make_model(FRAMES, spaces.Discrete(4))
    assert drawn != []
    load_weights(model, again.state_dict())
    for name, tensor in again.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
