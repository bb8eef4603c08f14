from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from sampler import EnvError
from sampler.rollout_worker.observations import ObservationWriter, outside
from sampler.spaces import leaves

FLOAT = spaces.Box(-np.inf, np.inf, (2,), np.float32)


def write(space, value):
    """`value` as it lies in a row; EnvError where it does not fit."""
    writer = ObservationWriter(space)
    targets = [np.zeros((3, 4, *leaf.shape), leaf.dtype) for leaf in leaves(space, "obs")]
    writer.write(value, targets, 1, 2)
    for target in targets:
        others = np.ones((3, 4), bool)
        others[1, 2] = False
        assert not target[others].any()
    return [target[1, 2] for target in targets]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.float32, [1, 2]),
        (np.float32, np.array([0.5, np.inf])),
        (np.float32, np.array([np.nan, 1.0])),
        (np.float32, np.array([2**24, -1], np.int64)),
        (np.uint8, np.array([255, 0], np.int64)),
        (np.uint8, np.array([7.0, 1.0])),
        (np.int64, np.array([True, False])),
        (np.float16, np.array([0.5, 2048.0], np.float32)),
    ],
)
def test_conversions_that_lose_nothing(dtype, value):
    info = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    (stored,) = write(spaces.Box(info.min, info.max, (2,), dtype), value)
    assert stored.dtype == dtype
    np.testing.assert_array_equal(stored, value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.float32, np.array([0.1, 0.0])),
        (np.float32, np.array([2**24 + 1, 0], np.int64)),
        (np.float32, np.array([1e300, 0.0])),
        (np.uint8, np.array([256, 0])),
        (np.uint8, np.array([-1, 0])),
        (np.uint8, np.array([0.5, 0])),
        (np.int64, np.array([2**63, 0], np.uint64)),
        (np.int64, np.array([np.nan, 0])),
        (np.float32, np.array([1 + 1j, 0])),
        (np.float32, np.array(["1", "2"])),
        (np.float32, np.array([None, 1], object)),
    ],
    ids=str,
)
def test_conversions_that_would_change_a_value(dtype, value):
    info = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    with pytest.raises(EnvError, match="and a conversion would change"):
        write(spaces.Box(info.min, info.max, (2,), dtype), value)


@pytest.mark.parametrize("value", [[1], [[1, 2]], 5, [1, 2, 3], [[1, 2], [3]]])
def test_other_shapes(value):
    with pytest.raises((EnvError, ValueError)):
        write(FLOAT, value)


def test_nested_values():
    space = spaces.Dict({"a": FLOAT, "b": spaces.Tuple((spaces.Discrete(3), FLOAT))})
    parts = write(space, {"b": (2, [3.0, 4.0]), "a": np.float32([1, 2]), "extra": 5})
    assert [part.tolist() for part in parts] == [[1, 2], 2, [3, 4]]
    for wrong in ({"a": 1}, {"a": [1, 2], "b": (1,)}, [1, 2], None, {"a": [1, 2], "b": 3}):
        with pytest.raises(EnvError, match="is not nested like its space"):
            write(space, wrong)


@pytest.mark.parametrize(
    ("space", "values", "position"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), [[[0, 255]]], None),
        (spaces.Box(0, 9, (2,), np.uint8), [[[0, 9], [9, 10]]], (0, 1, 1)),
        (spaces.Box(-1, 1, (), np.float32), [[0.0, 1.0], [-1.0, 1.5]], (1, 1)),
        (spaces.Box(-1, np.inf, (), np.float32), [[np.inf, np.nan]], (0, 1)),
        (FLOAT, [[[np.inf, -np.inf]]], None),
        (FLOAT, [[[0.0, np.nan]]], (0, 0, 1)),
        (spaces.Discrete(3, start=2), [[2, 4], [5, 2]], (1, 0)),
        (spaces.Discrete(3, start=2), [[2, 1]], (0, 1)),
        (spaces.MultiDiscrete([2, 5]), [[[1, 4], [2, 0]]], (0, 1, 0)),
        (spaces.MultiDiscrete([2, 5], start=[1, 0]), [[[1, 0], [2, 4]]], None),
        (spaces.MultiBinary(2), [[[0, 1], [1, 1]]], None),
        (spaces.MultiBinary(2), [[[0, 1], [1, -1]]], (0, 1, 1)),
    ],
    ids=str,
)
def test_values_outside_a_space(space, values, position):
    leaf = leaves(space, "obs")[0]
    assert outside(leaf, np.array(values, leaf.dtype)) == position
