from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.published import cases, check_numbers, parameters

from sampler.learner.functional.normalize import (
    RewardScaler,
    RunningMeanStd,
    normalize_advantages,
)

# --- published numbers: one handler per operation; a case without one fails with a KeyError ------


def run_vecnormalize(x: dict) -> dict:
    assert (x["init_mean"], x["init_var"]) == (0.0, 1.0)
    observations = RunningMeanStd((1,), count=x["init_count"])
    scaler = RewardScaler(x["gamma"], count=x["init_count"])
    lanes = np.arange(x["envs"])
    observations.update(np.array(x["obs_reset"]))
    result = {
        "obs_mean_after_reset": observations.mean.item(),
        "ret_mean_after_reset": scaler.statistics.mean.item(),
    }
    observations.update(np.array(x["obs_step"]))
    scaler.update(np.array(x["reward_step"])[:, None], np.zeros((2, 1), bool), lanes)
    return result | {
        "obs_mean_after_step": observations.mean.item(),
        "ret_mean_after_step": scaler.statistics.mean.item(),
    }


def run_normalize_clip(x: dict) -> dict:
    statistics = RunningMeanStd(clip=x["max_abs"])
    values = np.array(x["x"], np.float64)
    statistics.update(values)
    result = statistics.normalize(values)
    return {"mean": result.mean(), "std": result.std()}


HANDLERS = {
    "vecnormalize": run_vecnormalize,
    "normalize_clip": run_normalize_clip,
}


@pytest.mark.parametrize("case", parameters(cases("normalization")))
def test_published_numbers(case):
    check_numbers(case, HANDLERS)


# --- running statistics --------------------------------------------------------------------------


def samples(n: int = 100, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(5, 3, (n, *shape))


@pytest.mark.parametrize("shape", [(), (3,), (2, 4)])
def test_batches_merge_exactly(shape):
    data = samples(100, *shape)
    statistics = RunningMeanStd(shape)
    for part in np.split(data, [1, 2, 50, 99]):
        statistics.update(part)
    np.testing.assert_allclose(statistics.mean, data.mean(0), rtol=1e-12)
    np.testing.assert_allclose(statistics.var, data.var(0), rtol=1e-12)
    assert statistics.count == 100


def test_two_statistics_merge():
    data = samples(60, 2)
    one, other = RunningMeanStd((2,)), RunningMeanStd((2,))
    one.update(data[:20])
    other.update(data[20:])
    one.merge(other)
    np.testing.assert_allclose(one.mean, data.mean(0), rtol=1e-12)
    np.testing.assert_allclose(one.var, data.var(0), rtol=1e-12)
    one.merge(RunningMeanStd((2,)))
    assert one.count == 60


def test_a_large_mean_does_not_swallow_the_variance():
    statistics = RunningMeanStd()
    for i in range(100):
        statistics.update(1e8 + np.array([i % 2, i % 2], np.float64))
    assert statistics.var == pytest.approx(0.25, rel=1e-6)


def test_masked_samples_and_rows_of_steps():
    data = samples(24, 3).reshape(4, 6, 3)
    mask = np.random.default_rng(1).random((4, 6)) < 0.5
    statistics = RunningMeanStd((3,))
    statistics.update(data, mask)
    np.testing.assert_allclose(statistics.mean, data[mask].mean(0), rtol=1e-12)
    statistics.update(data, np.zeros((4, 6), bool))
    assert statistics.count == mask.sum()


def test_tensors_give_what_arrays_give():
    data = samples(30, 2).astype(np.float32)
    array, tensor = RunningMeanStd((2,)), RunningMeanStd((2,))
    array.update(data)
    tensor.update(torch.from_numpy(data))
    np.testing.assert_allclose(tensor.mean, array.mean, rtol=1e-12)
    np.testing.assert_allclose(tensor.var, array.var, rtol=1e-12)
    result = tensor.normalize(torch.from_numpy(data))
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), array.normalize(data), rtol=1e-6, atol=1e-6)


def test_normalized_values_are_clipped_and_float32():
    statistics = RunningMeanStd((2,))
    statistics.update(samples(50, 2))
    x = np.array([[1e9, -1e9]], np.float32)
    result = statistics.normalize(x)
    assert result.dtype == np.float32
    assert result.tolist() == [[10.0, -10.0]]
    assert statistics.normalize(np.array([[3, 4]], np.uint8)).dtype == np.float32


def test_a_constant_has_the_floor_for_its_variance():
    statistics = RunningMeanStd(eps=1e-4)
    statistics.update(np.full(10, 3.0))
    assert statistics.std == pytest.approx(1e-2)
    assert statistics.normalize(np.array([3.0])).tolist() == [0.0]


def test_before_the_first_sample_it_is_the_identity():
    x = np.array([1.0, -2.0])
    np.testing.assert_allclose(RunningMeanStd().normalize(x), x, rtol=1e-7)


def test_state_restores():
    one, other = RunningMeanStd((2,)), RunningMeanStd((2,))
    one.update(samples(10, 2))
    state = one.state_dict()
    torch.testing.assert_close(one.state(), state, rtol=0, atol=0)
    one.update(samples(10, 2, seed=1))
    other.load_state_dict(state)
    other.update(samples(10, 2, seed=1))
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.var, other.var)
    assert one.count == other.count


# --- rewards -------------------------------------------------------------------------------------


def returns_of(rewards, ends, gamma):
    """All discounted returns of one lane, step by step."""
    current, result = 0.0, []
    for r, end in zip(rewards, ends, strict=True):
        current = gamma * current + r
        result.append(current)
        current = 0.0 if end else current
    return result


def test_lanes_carry_their_returns_from_row_to_row():
    """Three lanes cut into rows of 5, handed in out of order and several at a time."""
    rng = np.random.default_rng(0)
    rewards, ends = rng.normal(size=(3, 20)), rng.random((3, 20)) < 0.2
    scaler, expected = RewardScaler(0.9), []
    for lane in range(3):
        expected += returns_of(rewards[lane], ends[lane], 0.9)
    schedule = [[(2, 0), (0, 0), (2, 1)], [(1, 0), (0, 1), (2, 2), (1, 1), (0, 2)]]
    schedule += [[(2, 3)], [(1, 2), (0, 3), (1, 3)]]
    for batch in schedule:
        rows = [(lane, slice(5 * k, 5 * k + 5)) for lane, k in batch]
        scaler.update(
            np.stack([rewards[row] for row in rows]),
            np.stack([ends[row] for row in rows]),
            np.array([lane for lane, _ in rows]),
        )
    assert scaler.statistics.count == 60
    assert scaler.statistics.mean == pytest.approx(np.mean(expected))
    assert scaler.statistics.var == pytest.approx(np.var(expected))
    x = np.array([1.0, -1.0], np.float32)
    np.testing.assert_allclose(scaler.scale(x), x / np.std(expected), rtol=1e-6)


def test_masked_and_overlapping_steps_are_not_counted():
    rewards = np.array([[1.0, 2.0, 0.0, 4.0], [0.0, 4.0, 8.0, 16.0]])
    ends = np.array([[False, True, False, False], [False, False, False, False]])
    mask = np.array([[True, True, False, True], [False, True, True, True]])
    scaler = RewardScaler(0.5)
    scaler.update(rewards[:1], ends[:1], np.array([0]), mask[:1])
    scaler.update(rewards[1:], ends[1:], np.array([0]), mask[1:], overlap=2)
    expected = [1.0, 2.5, 4.0, 10.0, 21.0]
    assert scaler.statistics.count == 5
    assert scaler.statistics.mean == pytest.approx(np.mean(expected))
    assert scaler.statistics.var == pytest.approx(np.var(expected))


def test_a_lane_that_begins_an_episode_forgets_the_one_that_never_ended():
    """As where its worker was restarted."""
    scaler = RewardScaler(0.5)
    going_on = np.zeros((2, 2), bool)
    lanes = np.array([0, 1])
    scaler.update(np.full((2, 2), 4.0), going_on, lanes)
    scaler.update(np.full((2, 2), 8.0), going_on, lanes, begins=np.array([False, True]))
    expected = [4, 6, 4, 6, 11, 13.5, 8, 12]
    assert scaler.statistics.mean == pytest.approx(np.mean(expected))
    assert scaler.statistics.var == pytest.approx(np.var(expected))
    assert scaler.returns.tolist() == [13.5, 12.0]


def test_scaled_rewards_keep_sign_and_type():
    scaler = RewardScaler(0.99, clip=5.0)
    scaler.update(np.ones((2, 50), np.float32), np.zeros((2, 50), bool), np.array([0, 1]))
    rewards = torch.tensor([2.0, -2.0, 0.0, 1e6])
    scaled = scaler.scale(rewards)
    assert scaled.dtype == torch.float32
    assert scaled.sign().tolist() == [1, -1, 0, 1]
    assert scaled[3].item() == 5.0
    np.testing.assert_allclose(scaler.scale(rewards.numpy()), scaled.numpy(), rtol=1e-6)


def test_scaler_state_restores():
    one, other = RewardScaler(0.9), RewardScaler(0.9)
    rows = np.ones((2, 3)), np.zeros((2, 3), bool), np.array([1, 0])
    one.update(*rows)
    other.load_state_dict(one.state_dict())
    one.update(*rows)
    other.update(*rows)
    np.testing.assert_array_equal(one.returns, other.returns)
    assert one.statistics.var == other.statistics.var


# --- advantages ----------------------------------------------------------------------------------


def test_advantages_are_normalized_over_valid_steps():
    x = torch.from_numpy(samples(40).reshape(4, 10))
    mask = torch.rand(4, 10, generator=torch.Generator().manual_seed(0)) < 0.7
    junk = torch.where(mask, x, torch.full_like(x, 1e9))
    result = normalize_advantages(junk, mask)
    assert result[mask].mean().item() == pytest.approx(0, abs=1e-12)
    assert result[mask].std().item() == pytest.approx(1)
    assert result[~mask].eq(0).all()
    torch.testing.assert_close(normalize_advantages(x), (x - x.mean()) / (x.std() + 1e-8))


@pytest.mark.parametrize("valid", [0, 1])
def test_few_valid_steps_do_not_make_nan(valid):
    mask = torch.arange(4) < valid
    assert normalize_advantages(torch.tensor([3.0, 1, 2, 5]), mask).eq(0).all()
