"""Row storage and prioritised sequence replay."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from helpers.published import cases, parameters

from sampler import Sampler, SamplerConfig
from sampler.envs import make
from sampler.errors import ConfigError
from sampler.learner.algorithms.registry import ALGORITHMS
from sampler.learner.presets import choose_preset
from sampler.learner.replay import (
    RowStorage,
    SequenceReplay,
    capacity_in_rows,
    row_fields,
    row_storage,
    sequence_priority,
)
from sampler.learner.replay.priorities import FLOOR, Priorities

FIELDS = {"frames": ((5, 3), np.uint8), "rewards": ((4,), np.float32), "lane_id": ((), np.int64)}


def rows_from(first: int, n: int) -> dict[str, np.ndarray]:
    """Rows that can be recognised by their number."""
    number = np.arange(first, first + n)
    return {
        "frames": (number[:, None, None] + np.arange(15).reshape(5, 3)).astype(np.uint8),
        "rewards": (number[:, None] + np.arange(4) / 10).astype(np.float32),
        "lane_id": number,
        "ignored": number,
    }


# --- published numbers: one handler per operation; a case without one fails with a KeyError ------


def run_seq_priority(x: dict) -> dict:
    return {"priority": sequence_priority(np.array(x["td"]), eta=x["eta"])}


HANDLERS = {
    "seq_priority": run_seq_priority,
}
ELSEWHERE = {"eps_ladder", "eps_greedy"}  # tests/models


@pytest.mark.parametrize("case", parameters(cases("r2d2_pieces"), ELSEWHERE))
def test_published_numbers(case):
    result = HANDLERS[case["op"]](case["inputs"])
    for name, expected in case["expected"].items():
        if isinstance(expected, list):
            assert result[name] == expected
        else:
            np.testing.assert_allclose(result[name], expected, rtol=case["rtol"], atol=case["atol"])


# --- priorities of sequences ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_sequence_priority_ignores_masked_steps(kind):
    errors = kind(np.array([[1.0, -3.0, 99.0], [5.0, 5.0, 5.0], [7.0, 8.0, 9.0]]))
    mask = kind(np.array([[True, True, False], [True, True, True], [False, False, False]]))
    result = sequence_priority(errors, mask)
    assert type(result) is type(errors)
    np.testing.assert_allclose(result, [0.9 * 3 + 0.1 * 2, 5, 0])


def test_priority_of_the_maximum_alone():
    assert sequence_priority(np.array([[1.0, -2.0]]), eta=1.0).tolist() == [2.0]


# --- storage -------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "file"])
def path(request, tmp_path):
    return None if request.param == "memory" else tmp_path


def test_the_ring_keeps_the_last_rows(path):
    """Chunks of every size, wrapping many times, some larger than the storage."""
    storage, rng, added = RowStorage(FIELDS, 10, path), np.random.default_rng(0), 0
    for n in [1, 3, 10, 9, 2, 25, 4, *rng.integers(1, 14, 20)]:
        rows = storage.add(rows_from(added, int(n)))
        np.testing.assert_array_equal(rows, np.arange(added, added + n))
        added += n
        assert len(storage) == min(added, 10)
        kept = np.arange(added - len(storage), added)
        taken = storage.take(storage.slots(kept))
        for name in FIELDS:
            expected = rows_from(kept[0], len(kept))[name]
            np.testing.assert_array_equal(taken[name], expected)
            assert taken[name].dtype == expected.dtype
        np.testing.assert_array_equal(storage.rows(storage.slots(kept)), kept)
        everything = np.arange(-2, added + 2)
        np.testing.assert_array_equal(everything[storage.stored(everything)], kept)


def test_the_file_has_no_name(tmp_path):
    storage = RowStorage(FIELDS, 4, tmp_path)
    storage.add(rows_from(0, 4))
    assert list(tmp_path.iterdir()) == []


def test_buffers_are_filled_in_place():
    storage = RowStorage(FIELDS, 4)
    storage.add(rows_from(0, 4))
    out = storage.buffers(3)
    kept = dict(out)
    taken = storage.take(np.array([2, 2, 0]), out)
    assert taken is out
    assert all(taken[name] is kept[name] for name in FIELDS)
    assert taken["lane_id"].tolist() == [2, 2, 0]


def test_too_large_for_memory(monkeypatch):
    monkeypatch.setattr(row_storage, "available_memory", lambda: 3 * 2**30)
    with pytest.raises(ConfigError) as error:
        RowStorage({"frames": ((84, 84, 84), np.uint8)}, 10_000, remedy="lower --replay-steps")
    assert str(error.value) == (
        "replay of 10,000 rows needs 5.52 GiB and 3.00 GiB of memory are free: lower --replay-steps"
    )


def test_too_large_for_the_disk(tmp_path):
    with pytest.raises(ConfigError, match=rf"GiB of disk in {tmp_path} are free: lower"):
        RowStorage({"frames": ((2**30,), np.uint8)}, 10**7, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_bound_in_bytes_lowers_the_capacity():
    row = 15 + 4 * 4 + 8
    assert RowStorage(FIELDS, 10, max_bytes=5 * row - 1).capacity == 4
    assert RowStorage(FIELDS, 10, max_bytes=11 * row).capacity == 10
    replay = SequenceReplay(FIELDS, 10, max_bytes=2 * row)
    assert replay.storage.capacity == replay.priorities.tree.capacity == 2
    assert not replay.storage.full
    replay.add(rows_from(0, 5))
    assert len(replay) == 2
    assert replay.storage.full
    with pytest.raises(ConfigError, match="a replay of 38 bytes holds no row, which has 39"):
        RowStorage(FIELDS, 10, max_bytes=row - 1)


def test_a_bad_directory_is_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="give a writable directory"):
        RowStorage(FIELDS, 4, tmp_path / "missing")


def test_no_capacity_is_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        RowStorage(FIELDS, 0)


@pytest.mark.parametrize("algorithm", ["r2d2", "apex", "dqn"])
def test_bytes_of_an_atari_step(algorithm):
    """Frames once, but for those that a row repeats, and all that goes with them in under 3%."""
    env, stack = "PongNoFrameskip-v4", 4
    made = make(env)
    preset = choose_preset(algorithm, made.observation_space, made.action_space)
    made.close()
    kind = ALGORITHMS[algorithm]
    changes = {"workers": 1, "envs_per_worker": 1, "groups": 1, "batch": 1, "serial": True}
    config = SamplerConfig(env=env, device="cpu", **{**preset.sampler, **changes})
    with Sampler(config, partial(kind.model, settings=preset.model)) as sampler:
        settings = replace(preset.learner, replay_capacity=5_000, learning_starts=5_000)
        learner = kind.learner.for_sampler(sampler, settings, "cpu")
        learner.prepare(sampler)
    storage = learner.replay.storage
    steps, new_steps = config.rollout, config.rollout - config.overlap
    assert storage.capacity * new_steps >= settings.replay_capacity
    per_step = storage.nbytes / (storage.capacity * new_steps)
    assert 84 * 84 < per_step < 1.03 * 84 * 84 * (steps + stack) / new_steps


def test_capacity_in_rows():
    assert capacity_in_rows(1000, 80) == 13
    assert capacity_in_rows(1000, 80, overlap=40) == 25
    assert row_fields(rows_from(0, 2))["frames"] == ((5, 3), np.uint8)


# --- which items are sampled ---------------------------------------------------------------------


def frequencies(priorities: Priorities, n: int = 20_000) -> np.ndarray:
    rng = np.random.default_rng(5)
    index = np.concatenate([priorities.sample(40, rng)[0] for _ in range(n // 40)])
    return np.bincount(index, minlength=priorities.tree.capacity)


@pytest.mark.parametrize(("alpha", "uniform"), [(1.0, 0.0), (0.6, 0.0), (0.0, 0.0), (0.8, 0.3)])
def test_frequencies_follow_the_formula(alpha, uniform):
    """Chi-square with an invalid item among 8 valid ones; 99.9% quantile for 7 degrees: 24.3."""
    priorities = Priorities(16, alpha, uniform=uniform)
    p = np.array([1, 2, 0.5, 4, 9, 1, 3, 8, 2])
    valid = np.arange(9) != 4
    priorities.add(np.arange(9), p, valid)
    expected = np.where(valid, p, 0) ** alpha * valid
    expected = (1 - uniform) * expected / expected.sum() + uniform * valid / 8
    np.testing.assert_allclose(priorities.probabilities(np.flatnonzero(valid)), expected[valid])
    counts, expected = frequencies(priorities)[:9], 20_000 * expected
    assert counts.sum() == 20_000
    assert counts[4] == 0
    assert ((counts - expected) ** 2 / np.where(valid, expected, 1)).sum() < 24.3


def test_an_error_of_zero_is_not_forgotten():
    priorities = Priorities(2, alpha=1.0)
    priorities.add(np.array([0, 1]), [0.0, 1.0])
    assert priorities.probabilities(np.array([0]))[0] == pytest.approx(FLOOR, rel=1e-3)


def test_new_items_start_with_the_largest_priority():
    priorities = Priorities(4, alpha=0.5)
    priorities.add(np.array([0]))
    priorities.add(np.array([1]), [16.0])
    priorities.add(np.array([2]))
    assert priorities.tree.values.tolist() == [1, 4, 4, 0]


def test_weights_use_the_number_stored_and_not_the_capacity():
    priorities = Priorities(1000, alpha=1.0, beta=0.5, normalize="none")
    priorities.add(np.arange(4), [1.0, 2.0, 3.0, 4.0])
    probabilities = np.array([0.1, 0.2, 0.3, 0.4])
    weights = priorities.weights(np.arange(4))
    np.testing.assert_allclose(weights, (4 * probabilities) ** -0.5, rtol=1e-6)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(priorities.weights(np.arange(4), beta=0.0), 1)


def test_weights_relative_to_the_batch_or_to_everything():
    p, index = [1.0, 2.0, 4.0], np.array([1, 2, 2])
    batch, everything = Priorities(8, 1.0, 1.0), Priorities(8, 1.0, 1.0, normalize="all")
    for priorities in (batch, everything):
        priorities.add(np.arange(3), p)
        priorities.add(np.array([3]), [0.5], valid=False)
    np.testing.assert_allclose(batch.weights(index), [1, 0.5, 0.5])
    np.testing.assert_allclose(everything.weights(index), [0.5, 0.25, 0.25])
    everything.update(np.array([0]), [2.0])
    np.testing.assert_allclose(everything.weights(index), [1, 0.5, 0.5])


def test_the_number_of_valid_items_is_kept():
    priorities = Priorities(8)
    priorities.add(np.arange(4), None, np.array([True, False, True, True]))
    assert priorities.count == 3
    priorities.add(np.arange(1, 3), None, np.array([True, False]))
    assert priorities.count == 3
    priorities.update(np.array([0, 0]), [5.0, 0.0])
    assert priorities.count == 3


@pytest.mark.parametrize("settings", [{"alpha": -1}, {"beta": -0.1}, {"uniform": 1.1}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError, match="must be"):
        Priorities(4, **settings)


# --- sequence replay -----------------------------------------------------------------------------


def test_samples_are_the_rows_they_say(path):
    replay, rng = SequenceReplay(FIELDS, 8, path=path), np.random.default_rng(0)
    with pytest.raises(ValueError, match="sampled"):
        replay.sample(4, rng)
    out = replay.buffers(16)
    for first in range(0, 40, 5):
        replay.add(rows_from(first, 5), rng.random(5))
        fields, rows, weights = replay.sample(16, rng, out)
        assert fields is out
        assert rows.min() >= first + 5 - len(replay)
        np.testing.assert_array_equal(fields["lane_id"], rows)
        np.testing.assert_array_equal(fields["frames"][:, 4, 2], (rows + 14).astype(np.uint8))
        assert weights.max() == 1
        assert weights.dtype == np.float32
    assert len(replay) == 8


def test_priorities_of_overwritten_rows_are_dropped():
    """Row 9 has taken row 1's slot between its sampling and its update."""
    replay = SequenceReplay(FIELDS, 8, alpha=1.0)
    replay.add(rows_from(0, 8), np.ones(8))
    replay.add(rows_from(8, 2), np.ones(2))
    changed = replay.update_priorities(np.array([1, 2, 9, 2]), np.array([50.0, 3.0, 4.0, 6.0]))
    assert changed == 3
    # Slots 0 and 1 hold rows 8 and 9.
    assert replay.priorities.tree.values.tolist() == [1, 4, 6, 1, 1, 1, 1, 1]


def test_priorities_may_be_tensors():
    replay = SequenceReplay(FIELDS, 4, alpha=1.0)
    replay.add(rows_from(0, 2), torch.tensor([1.0, 2.0]))
    replay.update_priorities(np.array([0]), torch.tensor([5.0]))
    assert replay.priorities.tree.values.tolist() == [5, 2, 0, 0]


def test_more_rows_than_the_capacity_at_once():
    replay = SequenceReplay(FIELDS, 4, alpha=1.0)
    rows = replay.add(rows_from(0, 6), np.arange(1.0, 7.0))
    assert rows.tolist() == [2, 3, 4, 5]
    assert replay.priorities.tree.values.tolist() == [5, 6, 3, 4]


def test_rows_without_a_valid_step_are_never_sampled():
    replay = SequenceReplay({"mask": ((3,), bool)}, 4, alpha=0.0, uniform=0.5)
    replay.add({"mask": np.array([[1, 1, 1], [0, 0, 0], [0, 1, 0]], bool)}, np.ones(3))
    _, rows, _ = replay.sample(100, np.random.default_rng(0))
    assert set(rows.tolist()) == {0, 2}


def test_uniform_replay_ignores_priorities():
    replay, rng = SequenceReplay(FIELDS, 4, alpha=0.0), np.random.default_rng(0)
    replay.add(rows_from(0, 4), [1.0, 100.0, 1e-3, 0.0])
    _, rows, weights = replay.sample(400, rng)
    assert np.bincount(rows).tolist() == [100] * 4  # stratified
    assert (weights == 1).all()


def test_saved_replay_goes_on_as_if_nothing_had_happened():
    def run(replay: SequenceReplay, rng: np.random.Generator, first: int) -> list:
        trace = []
        for step in range(first, first + 5):
            replay.add(rows_from(3 * step, 3))
            fields, rows, weights = replay.sample(6, rng)
            trace.append((fields["rewards"].tolist(), rows.tolist(), weights.tolist()))
            replay.update_priorities(rows, 1 + fields["rewards"].mean(1) % 7)
        return trace

    one, rng = SequenceReplay(FIELDS, 10), np.random.default_rng(0)
    run(one, rng, 0)
    saved = copy.deepcopy(one.state_dict())
    state = rng.bit_generator.state
    expected = run(one, rng, 5)

    other = SequenceReplay(FIELDS, 10)
    other.add(rows_from(77, 9), np.full(9, 1e3))  # is to be forgotten
    other.load_state_dict(saved)
    rng.bit_generator.state = state
    assert run(other, rng, 5) == expected


def test_saving_partly_filled_and_empty():
    for n in (0, 3):
        one, other = SequenceReplay(FIELDS, 10), SequenceReplay(FIELDS, 10)
        if n:
            one.add(rows_from(0, n))
        other.load_state_dict(one.state_dict())
        assert len(other) == n
        assert other.priorities.count == n


@pytest.mark.parametrize(
    ("fields", "capacity", "message"),
    [
        (FIELDS, 11, "use the saved capacity"),
        (FIELDS | {"rewards": ((5,), np.float32)}, 10, r"'rewards' is float32 \(5,\) here"),
        (FIELDS | {"rewards": ((4,), np.float64)}, 10, "float32"),
        (FIELDS | {"extra": ((), np.int8)}, 10, "no such field"),
    ],
)
def test_another_replays_state_is_refused(fields, capacity, message):
    saved = SequenceReplay(FIELDS, 10)
    saved.add(rows_from(0, 10))
    with pytest.raises(ConfigError, match=message):
        SequenceReplay(fields, capacity).load_state_dict(saved.state_dict())
