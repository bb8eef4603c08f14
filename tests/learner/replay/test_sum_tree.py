from __future__ import annotations

import numpy as np
import pytest
from helpers.published import cases, check_numbers, parameters

from sampler.learner.replay.priorities import Priorities
from sampler.learner.replay.sum_tree import TOP, MinTree, SumTree


def tree_of(values) -> SumTree:
    tree = SumTree(len(values))
    tree.set(np.arange(len(values)), values)
    return tree


# --- published numbers: one handler per operation; a case without one fails with a KeyError ------


def run_query(x: dict) -> dict:
    tree = tree_of(x["values"])
    return {"index": tree.find(x["targets"]), "root": tree.total}


def run_set(x: dict) -> dict:
    tree = tree_of(x["values"])
    for index, priorities in x["set"]:
        tree.set(index, priorities)
    return {"values": tree.values, "root": tree.total}


def run_min_range(x: dict) -> dict:
    tree = MinTree(len(x["values"]))
    for index, value in enumerate(x["values"]):
        if value is not None:
            tree.set(index, value)
    return {"min": [tree.min(*bounds) for bounds in x["ranges"]]}


def run_is_weights(x: dict) -> dict:
    priorities = Priorities(16, x["alpha"], x["beta"])
    index = np.arange(x["N"])
    priorities.add(index, x["priorities"])
    return {"prob": priorities.probabilities(index), "w_max_norm": priorities.weights(index)}


def run_sample_probs(x: dict) -> dict:
    priorities = Priorities(4, x["alpha"], uniform=x["uniform"])
    index = np.arange(len(x["priorities"]))
    priorities.add(index, x["priorities"])
    return {"prob": priorities.probabilities(index)}


def run_stratified(x: dict) -> dict:
    return {"index": tree_of(x["values"]).sample(x["k"], np.random.default_rng(3))}


def run_max_recorded(x: dict) -> dict:
    tree, recorded = SumTree(len(x["sets"])), []
    for index, priority in enumerate(x["sets"]):
        tree.set(index, priority)
        recorded.append(tree.max_recorded)
    return {"max_after": recorded}


HANDLERS = {
    "sumtree_query": run_query,
    "sumtree_query_nonzero": run_query,
    "sumtree_set": run_set,
    "min_range": run_min_range,
    "is_weights": run_is_weights,
    "sample_probs": run_sample_probs,
    "stratified": run_stratified,
    "max_recorded": run_max_recorded,
}


@pytest.mark.parametrize("case", parameters(cases("sum_tree_per")))
def test_published_numbers(case):
    check_numbers(case, HANDLERS)


# --- properties ----------------------------------------------------------------------------------

SIZES = [1, 2, 7, TOP, TOP + 1, 5 * TOP - 3]


@pytest.mark.parametrize("size", SIZES)
def test_agrees_with_running_sums(size):
    """Random sets with repeated indices and zeros, against a plain array and its cumulative sum."""
    rng = np.random.default_rng(size)
    tree, plain = SumTree(size), np.zeros(size)
    for _ in range(20):
        index = rng.integers(size, size=50)
        # Small integers: the sums are exact, so both must agree at the boundaries as well.
        priorities = rng.integers(0, 4, 50).astype(float)
        tree.set(index, priorities)
        for i, p in zip(index, priorities, strict=True):
            plain[i] = p
        np.testing.assert_array_equal(tree.values, plain)
        assert tree.total == plain.sum()
        if plain.sum():
            targets = np.concatenate((rng.random(40) * plain.sum(), np.arange(plain.sum())))
            expected = np.searchsorted(plain.cumsum(), targets, side="right")
            np.testing.assert_array_equal(tree.find(targets), expected)


def test_rounding_never_finds_an_empty_leaf():
    rng = np.random.default_rng(0)
    size = 4 * TOP
    values = np.where(rng.random(size) < 0.05, rng.random(size) ** 9, 0)
    tree = tree_of(values)
    for n in (7, 100, 3000):
        assert (values[tree.sample(n, rng)] > 0).all()
    edges = np.nextafter(values.cumsum(), 0)
    assert (values[tree.find(edges[edges < tree.total])] > 0).all()
    assert values[tree.find(np.nextafter(tree.total, 0))] > 0


def test_a_target_at_a_rounded_sum_finds_no_empty_leaf():
    """The running sum 1 + (2^53 + 2) is rounded up by 1, so what is left of targets just beyond the
    first leaf is negative in the pair of leaves 2 and 3."""
    tree = SumTree(2 * TOP)
    tree.set([0, 3], [1.0, 2.0**53 + 2])
    assert tree.find([0.5, 1.0, 1.5]).tolist() == [0, 3, 3]
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = np.where(rng.random(2 * TOP) < 0.5, rng.random(2 * TOP) ** 3, 0)
        tree = tree_of(values)
        sums = values.reshape(-1, 2).sum(1).cumsum()
        assert (values[tree.find(sums[sums < tree.total])] > 0).all()


def test_sums_do_not_drift():
    rng = np.random.default_rng(0)
    tree = SumTree(2 * TOP)
    for _ in range(200):
        tree.set(rng.integers(2 * TOP, size=512), 10 ** rng.uniform(-6, 6, 512))
    tree.set(np.arange(2 * TOP), 0.25)
    assert tree.total == 2 * TOP * 0.25


def test_scalars_and_shapes():
    tree = SumTree(4)
    tree.set(2, 3.0)
    assert tree.get(2) == 3.0
    assert tree.find(1.5) == 2
    assert tree.find(np.zeros((2, 3))).shape == (2, 3)
    tree.set([], [])
    tree.set([0, 1], 1)
    assert tree.values.tolist() == [1, 1, 3, 0]


@pytest.mark.parametrize("target", [-0.1, 11.0, np.nan])
def test_targets_outside_are_refused(target):
    with pytest.raises(ValueError, match="outside"):
        tree_of([3.0, 1.0, 2.0, 5.0]).find([0.0, target])


@pytest.mark.parametrize("priority", [-1.0, np.inf, np.nan])
def test_impossible_priorities_are_refused(priority):
    tree = tree_of([1.0, 1.0])
    with pytest.raises(ValueError, match="finite"):
        tree.set([0, 1], [2.0, priority])
    assert tree.values.tolist() == [1, 1]


@pytest.mark.parametrize("index", [-1, 3])
def test_indices_outside_are_refused(index):
    with pytest.raises(IndexError, match="outside"):
        SumTree(3).set(index, 1.0)


def test_values_cannot_be_written_around_the_tree():
    with pytest.raises(ValueError, match="read-only"):
        tree_of([1.0, 2.0]).values[0] = 5
    tree_of([1.0, 2.0]).set(0, 5)  # while the tree itself still can


def test_nothing_to_sample_is_an_error():
    with pytest.raises(ValueError, match="0"):
        SumTree(4).sample(2, np.random.default_rng(0))


@pytest.mark.parametrize("stratified", [False, True])
def test_sampling_follows_the_priorities(stratified):
    """Chi-square over 8 leaves; the 99.9% quantile for 7 degrees of freedom is 24.3."""
    values = np.array([1, 0, 4, 2, 8, 0.5, 3, 1.5])
    tree, rng = tree_of(values), np.random.default_rng(11)
    n = 20_000
    index = np.concatenate([tree.sample(50, rng, stratified) for _ in range(n // 50)])
    counts = np.bincount(index, minlength=8)
    expected = n * values / values.sum()
    assert counts[1] == 0
    drawn = values > 0
    assert (((counts - expected) ** 2)[drawn] / expected[drawn]).sum() < 24.3


def test_min_tree_follows_changes():
    rng = np.random.default_rng(0)
    tree, plain = MinTree(3 * TOP), np.full(3 * TOP, np.inf)
    assert tree.min() == np.inf
    for _ in range(20):
        index, values = rng.integers(3 * TOP, size=99), rng.random(99)
        tree.set(index, values)
        for i, value in zip(index, values, strict=True):
            plain[i] = value
        assert tree.min() == plain.min()
        assert tree.min(5, 50) == plain[5:50].min()
