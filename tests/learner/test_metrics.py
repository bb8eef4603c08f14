"""Means over minibatches, lag figures, and warnings in words."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from sampler.learner.metrics import Alarms, MetricMeans, entropy_floor, lag_metrics

GOOD = {
    "losses/entropy": 0.5,
    "losses/approx_kl": 0.01,
    "losses/explained_variance": 0.3,
    "perf/policy_lag_mean": 2.0,
    "perf/policy_lag_min": 0.0,
}


def test_means_start_anew():
    means = MetricMeans()
    means.add({"a": torch.tensor(1.0), "b": torch.tensor(5.0)})
    means.add({"a": torch.tensor(3.0)})
    assert means.means() == {"a": 2.0, "b": 5.0}
    assert means.means() == {}


def test_lag_counts_real_steps_only():
    lag = np.array([[1, 2, 90], [3, 4, 5]])
    real = np.array([[True, True, False], [True, True, True]])
    used = real & (lag < 5)
    assert lag_metrics(lag, real, used) == {
        "perf/policy_lag_mean": 3.0,
        "perf/policy_lag_max": 5.0,
        "perf/policy_lag_min": 1.0,
        "perf/valid_fraction": pytest.approx(4 / 6),
    }
    nothing = np.zeros_like(real)
    assert lag_metrics(lag, nothing, nothing)["perf/policy_lag_max"] == 0


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"losses/entropy": 0.001}, "entropy is gone"),
        ({"losses/approx_kl": 0.5}, "approximate KL is high"),
        (
            {"losses/explained_variance": -0.5, "losses/value_loss": 1.0},
            "explained variance stays negative",
        ),
        ({"perf/policy_lag_mean": 40.0}, "policy lag grows"),
        ({"perf/policy_lag_min": 6.0}, "published weights do not arrive"),
    ],
)
def test_a_fault_is_reported_once_when_it_persists(fault, words):
    alarms = Alarms(gym.spaces.Discrete(2), patience=5)
    for _ in range(10):
        assert alarms.check(GOOD) == []
    bad = {**GOOD, **fault}
    messages = [alarms.check(bad) for _ in range(20)]
    assert [len(m) for m in messages] == [0] * 2 + [1] + [0] * 17
    assert words in messages[2][0]
    for _ in range(4):
        assert alarms.check(GOOD) == []
    assert not any(alarms.check(bad) for _ in range(5))  # it never went away
    for _ in range(5):
        assert alarms.check(GOOD) == []
    assert [len(alarms.check(bad)) for _ in range(4)] == [0, 0, 1, 0]


def test_a_fault_of_the_beginning_is_none():
    """Before anything was learned values explain nothing."""
    bad = {**GOOD, "losses/explained_variance": -0.5, "losses/value_loss": 1.0}
    alarms = Alarms(gym.spaces.Discrete(2), patience=10)
    assert not any(alarms.check(bad if i < 9 else GOOD) for i in range(30))


def test_a_fault_may_spare_some_updates():
    bad = {**GOOD, "losses/approx_kl": 2.0}
    often = Alarms(gym.spaces.Discrete(2), patience=10)
    assert sum(len(often.check(GOOD if i % 3 == 0 else bad)) for i in range(100)) == 1
    seldom = Alarms(gym.spaces.Discrete(2), patience=10)
    assert sum(len(seldom.check(bad if i % 3 == 0 else GOOD)) for i in range(100)) == 0


def test_good_values_of_constant_returns_are_no_fault():
    alarms = Alarms(gym.spaces.Discrete(2), patience=5)
    solved = {
        **GOOD,
        "losses/explained_variance": -2.0,
        "losses/value_loss": 0.001,
        "losses/value_targets": 1.0,
    }
    assert all(alarms.check(solved) == [] for _ in range(10))


def test_entropy_floor_of_every_space():
    binary = gym.spaces.MultiBinary(2)
    assert entropy_floor(gym.spaces.Discrete(4)) == pytest.approx(0.01 * np.log(4))
    assert entropy_floor(gym.spaces.MultiDiscrete([2, 3])) == pytest.approx(0.01 * np.log(6))
    assert entropy_floor(binary) == pytest.approx(0.01 * np.log(4))
    box = gym.spaces.Box(-1, 1, (2,))
    collapsed = torch.distributions.Normal(0.0, 0.005).entropy() * 2
    assert entropy_floor(box) == pytest.approx(float(collapsed))
    for half in (1e-3, 200.0):
        narrow = torch.distributions.Normal(0.0, 0.005 * half).entropy() * 2
        assert entropy_floor(gym.spaces.Box(-half, half, (2,))) == pytest.approx(float(narrow))
    free = gym.spaces.Box(-np.inf, np.inf, (2,))
    assert entropy_floor(free) == pytest.approx(float(collapsed))
    assert entropy_floor(gym.spaces.Tuple((binary, box))) == pytest.approx(
        float(collapsed) + 0.01 * np.log(4)
    )
