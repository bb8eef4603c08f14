"""Running normalization of observations inside the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sampler.models import load_weights, make_model

VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)


def test_normalized_observations_have_mean_0_and_variance_1(build):
    space = spaces.Dict(
        {"a": VECTOR, "b": spaces.Discrete(2), "c": spaces.Box(0, 9, (1,), np.float64)}
    )
    model = build(make_model, space, spaces.Discrete(2), normalize_observations=True)
    g = torch.Generator().manual_seed(0)
    batches = [
        {
            "a": torch.randn(4, 50, 4, generator=g) * 7 + 1000,
            "b": torch.ones(4, 50, dtype=torch.int64),
            "c": torch.rand(4, 50, 1, generator=g).double(),
        }
        for _ in range(3)
    ]
    mask = torch.rand(4, 50, generator=g) < 0.8
    for batch in batches:
        batch["a"][~mask] = float("nan")  # what is masked out may hold anything
        model.update_normalizer(batch, mask)
    valid = {key: torch.cat([batch[key][mask] for batch in batches]) for key in batches[0]}
    _, vector = model.observations(valid)
    torch.testing.assert_close(vector[:, :5].mean(0), torch.zeros(5), rtol=0, atol=1e-3)
    torch.testing.assert_close(vector[:, :5].std(0, correction=0), torch.ones(5), rtol=1e-3, atol=0)
    assert vector[:, 5:].unique().tolist() == [0, 1]
    assert model.observations.normalizer.count.tolist() == [len(vector)] * 5


def test_statistics_travel_with_the_weights_and_are_clipped(build):
    model = build(make_model, VECTOR, spaces.Discrete(2), normalize_observations=True)
    model.update_normalizer(torch.randn(100, 4) * 3 + 5)
    copy_ = build(make_model, VECTOR, spaces.Discrete(2), seed=1, normalize_observations=True)
    load_weights(copy_, model.state_dict())
    obs = torch.randn(5, 4)
    assert torch.equal(copy_.observations(obs)[1], model.observations(obs)[1])
    assert model.observations(obs + 1e6)[1].tolist() == [[10.0] * 4] * 5


@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan"), 3.4e38])
def test_entries_that_would_spoil_the_statistics_are_not_counted(build, bad):
    """Boxes without bounds may hold an infinity: it is clipped like whatever is far away."""
    model = build(make_model, VECTOR, spaces.Discrete(2), normalize_observations=True)
    obs = torch.randn(20, 4) + 3
    spoilt = obs.clone()
    spoilt[::2, 1] = bad
    spoilt[:, 2] = bad
    model.update_normalizer(spoilt)
    normalizer = model.observations.normalizer
    assert normalizer.count.tolist() == [20, 10, 0, 20]
    for column, seen in ((0, obs[:, 0]), (1, obs[1::2, 1]), (3, obs[:, 3])):
        torch.testing.assert_close(normalizer.mean[column], seen.mean())
        torch.testing.assert_close(normalizer.var[column], seen.var(correction=0))
    assert (normalizer.mean[2], normalizer.var[2]) == (0, 1)


def test_the_first_statistics_change_nothing(build):
    model = build(make_model, VECTOR, spaces.Discrete(2), normalize_observations=True)
    obs = torch.randn(5, 4)
    torch.testing.assert_close(model.observations(obs)[1], obs)
    model.update_normalizer(obs, torch.zeros(5, dtype=torch.bool))
    torch.testing.assert_close(model.observations(obs)[1], obs)


def test_without_normalization_there_are_no_statistics(build):
    model = build(make_model, VECTOR, spaces.Discrete(2))
    model.update_normalizer(torch.randn(10, 4))
    assert not list(model.buffers())
