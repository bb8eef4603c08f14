from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from helpers.store import make_shared

from sampler import seeds
from sampler.policy_worker.random_actor import RandomActor
from sampler.policy_worker.requests import Requests
from sampler.shm.shared import Topology
from sampler.shm.weights import WeightStore
from sampler.spaces.masks import mask_size

COUNT = 20_000


def draw(space, mask=None):
    """Actions [COUNT, ...] by leaf, and their log-probabilities."""
    shared = make_shared(Topology(1, 1, 1, 1), action_mask_size=mask_size(space) if mask else 0)
    actor = RandomActor(shared, WeightStore(shared.arena), space, seeds.sequence(0, seeds.POLICY))
    nothing = np.zeros(COUNT, np.int64)
    requests = Requests(nothing, nothing, nothing, nothing, nothing, nothing)
    inputs = {"action_mask": np.tile(np.array(mask, bool), (COUNT, 1))} if mask else {}
    outputs, _ = actor.act(requests, inputs)
    return outputs


@pytest.mark.parametrize(
    ("space", "log_prob"),
    [
        (spaces.Discrete(5, start=-2), -np.log(5)),
        (spaces.MultiDiscrete([2, 3]), -np.log(6)),
        (spaces.MultiBinary(4), -np.log(16)),
        (spaces.Box(-1.0, 3.0, (2,), np.float32), -np.log(16)),
        (spaces.Box(0, 4, (), np.int8), -np.log(5)),
        (spaces.Tuple((spaces.Discrete(2), spaces.Dict({"a": spaces.Discrete(3)}))), -np.log(6)),
    ],
    ids=str,
)
def test_uniform_actions_have_their_exact_probability(space, log_prob):
    outputs = draw(space)
    np.testing.assert_allclose(outputs.pop("log_probs"), log_prob, rtol=1e-6)
    for name, values in outputs.items():
        assert len(values) == COUNT, name


def test_every_choice_is_equally_likely_and_inside_the_space():
    values, counts = np.unique(draw(spaces.Discrete(5, start=-2))["actions"], return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert (abs(counts / COUNT - 0.2) < 0.02).all()
    values, counts = np.unique(draw(spaces.Box(3, 6, (), np.int64))["actions"], return_counts=True)
    assert values.tolist() == [3, 4, 5, 6]
    assert (abs(counts / COUNT - 0.25) < 0.02).all()


@pytest.mark.parametrize(
    ("low", "high", "mean", "log_density"),
    [
        (-1.0, 3.0, 1.0, lambda x: np.full_like(x, -np.log(4))),
        (2.0, np.inf, 3.0, lambda x: 2.0 - x),
        (-np.inf, 2.0, 1.0, lambda x: x - 2.0),
        (-np.inf, np.inf, 0.0, lambda x: -0.5 * (x**2 + np.log(2 * np.pi))),
    ],
)
def test_boxes_with_and_without_bounds(low, high, mean, log_density):
    outputs = draw(spaces.Box(low, high, (), np.float64))
    actions = outputs["actions"]
    assert actions.min() >= low
    assert actions.max() <= high
    assert actions.mean() == pytest.approx(mean, abs=0.05)
    np.testing.assert_allclose(outputs["log_probs"], log_density(actions), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("space", "mask", "allowed", "log_prob"),
    [
        (spaces.Discrete(4, start=1), [1, 0, 1, 0], {1, 3}, -np.log(2)),
        (spaces.MultiDiscrete([2, 3]), [0, 1, 1, 1, 0], {(1, 0), (1, 1)}, -np.log(2)),
        (spaces.MultiBinary(2), [1, 0], {(0, 0), (1, 0)}, -np.log(2)),
    ],
    ids=str,
)
def test_masked_choices_are_never_drawn(space, mask, allowed, log_prob):
    outputs = draw(space, mask)
    drawn = outputs["actions"].tolist()
    assert {tuple(a) if isinstance(a, list) else a for a in drawn} == allowed
    np.testing.assert_allclose(outputs["log_probs"], log_prob, rtol=1e-6)
