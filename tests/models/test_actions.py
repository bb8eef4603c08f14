"""Stored actions on their way into the environment, and masks on their way out of it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

from sampler.errors import EnvError
from sampler.models.distributions import make_distribution
from sampler.spaces.actions import to_env
from sampler.spaces.masks import flatten_mask, mask_size

NESTED = spaces.Dict(
    {
        "move": spaces.MultiDiscrete([2, 3]),
        "arm": spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)]),
        "bits": spaces.MultiBinary(2),
    }
)


def test_torch_is_not_imported():
    code = "import sampler.spaces.actions, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=1),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Box(-np.inf, np.inf, (2,), np.float32),
        spaces.Tuple([spaces.Discrete(3)]),
    ],
)
def test_most_actions_need_no_conversion(space):
    assert to_env(space) is None


def test_box_actions_are_clipped_in_their_own_dtype():
    space = spaces.Box(np.float32([-1, 0]), np.float32([1, np.inf]), dtype=np.float32)
    actions = np.float32([[-3, -2], [0.5, 9], [2, 0]])
    clipped = to_env(space)(actions)
    assert clipped.dtype == np.float32
    assert np.array_equal(clipped, np.float32([[-1, 0], [0.5, 9], [1, 0]]))
    assert all(space.contains(action) for action in clipped)


def test_nested_actions_are_converted_leaf_by_leaf():
    actions = {
        "move": np.array([[1, 2]]),
        "arm": (np.float32([[-5, 0.5]]), np.array([1])),
        "bits": np.array([[1, 0]], np.int8),
    }
    converted = to_env(NESTED)(actions)
    assert converted["move"] is actions["move"]
    assert isinstance(converted["arm"], tuple)
    assert np.array_equal(converted["arm"][0], np.float32([[-1, 0.5]]))
    assert converted["arm"][1] is actions["arm"][1]


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Discrete(4, start=2), 4),
        (spaces.MultiDiscrete([[2, 3], [4, 1]]), 10),
        (spaces.MultiBinary((2, 3)), 6),
        (spaces.Box(-1, 1, (3,), np.float32), 0),
        (NESTED, 9),
    ],
)
def test_mask_size_agrees_with_the_distribution(space, size):
    assert mask_size(space) == make_distribution(space).mask_size == size


def test_masks_may_be_flat_or_nested():
    flat = np.array([1, 1, 0, 1, 1, 0, 1, 1, 0], np.int8)  # arm, bits, move: keys are sorted
    nested = {
        "move": (np.array([1, 0]), np.array([1, 1, 0], np.int8)),
        "arm": (None, np.array([True, True])),
        "bits": [0, 1],
    }
    for mask in (flat, nested, flat.astype(bool)):
        result = flatten_mask(NESTED, mask)
        assert result.dtype == bool
        assert np.array_equal(result, flat.astype(bool))
    assert flatten_mask(spaces.Discrete(3), None).all()


@pytest.mark.parametrize(
    ("space", "forbidding"),
    [
        (spaces.Discrete(3), [0, 0, 0]),
        (spaces.MultiDiscrete([2, 3]), [1, 0, 0, 0, 0]),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}), [1, 1, 0, 0]),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.MultiBinary(1)}), {"a": [0, 0], "b": 1}),
    ],
)
def test_something_must_be_permitted_but_after_the_last_action(space, forbidding):
    with pytest.raises(EnvError, match="permits no action"):
        flatten_mask(space, forbidding)
    assert flatten_mask(space, forbidding, final=True).all()


def test_masks_of_the_wrong_size_are_refused():
    with pytest.raises(EnvError, match="2 entries, but Discrete\\(3\\) needs 3"):
        flatten_mask(spaces.Discrete(3), [True, False])
    with pytest.raises(EnvError, match="no entry 'arm'"):
        flatten_mask(NESTED, {"move": None})
