from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.space_strategies import SPACES, draw
from hypothesis import given, settings

from sampler import ConfigError
from sampler.spaces import flatten, leaves, map_leaves, stack_frames, unflatten

BOX = spaces.Box(0.0, 1.0, (2, 3), np.float32)
NESTED = spaces.Dict({"z": BOX, "a": spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(4)))})


def test_leaves_are_named_by_their_path():
    found = leaves(NESTED, "obs")
    assert [leaf.name for leaf in found] == ["obs.a.0", "obs.a.1", "obs.z"]
    assert [leaf.path for leaf in found] == [("a", 0), ("a", 1), ("z",)]
    assert [leaf.shape for leaf in found] == [(), (4,), (2, 3)]
    assert [leaf.dtype.name for leaf in found] == ["int64", "int8", "float32"]
    assert [leaf.name for leaf in leaves(BOX, "actions")] == ["actions"]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(3),
        spaces.Sequence(BOX),
        spaces.Graph(BOX, None),
        spaces.OneOf((BOX, BOX)),
        spaces.Dict({"a": spaces.Tuple((spaces.Text(3),))}),
        gym.Space(),
    ],
)
def test_spaces_without_a_fixed_size_are_refused(space):
    with pytest.raises(ConfigError, match="have no fixed size; use Box, Discrete, MultiDiscrete"):
        leaves(space, "obs")


@settings(max_examples=50, deadline=None)
@given(SPACES)
def test_flatten_and_unflatten_are_inverses(space):
    value = draw(space, np.random.default_rng(0))
    flat = flatten(space, value)
    assert [np.shape(part) for part in flat] == [leaf.shape for leaf in leaves(space, "obs")]
    again = unflatten(space, flat)
    assert space.contains(again)
    for part, same in zip(flat, flatten(space, again), strict=True):
        assert part is same


@pytest.mark.parametrize(
    "value",
    [
        {"z": 1},
        {"z": 1, "a": (1,)},
        {"z": 1, "a": (1, 2, 3)},
        (1, 2),
    ],
)
def test_values_that_are_nested_otherwise_raise(value):
    with pytest.raises((KeyError, ValueError, TypeError)):
        flatten(NESTED, value)


def test_mapping_keeps_the_nesting():
    value = {"a": 1, "b": (2, {"c": 3})}
    assert map_leaves(lambda x: x + 1, value) == {"a": 2, "b": (3, {"c": 4})}
    assert map_leaves(lambda x: -x, 5) == -5


def test_stacks_of_frames():
    frame = spaces.Box(0, 200, (5, 6), np.uint8)
    stacked = stack_frames(frame, 4)
    assert stacked == spaces.Box(0, 200, (4, 5, 6), np.uint8)
    assert stack_frames(NESTED, 1) is NESTED
    for space in (NESTED, BOX, spaces.Discrete(3)):
        with pytest.raises(ConfigError, match="frame_stack=4 needs an environment with one uint8"):
            stack_frames(space, 4)


def test_an_entry_without_a_fixed_size_can_be_left_out_by_a_wrapper():
    space = spaces.Dict(image=BOX, mission=spaces.Text(9))
    remedy = r"gymnasium\.wrappers\.FilterObservation\(env, \['image'\]\) leaves this one out$"
    with pytest.raises(ConfigError, match=r"^obs\.mission: Text spaces .*; " + remedy):
        leaves(space, "obs")
    with pytest.raises(ConfigError, match=r"or a Dict or Tuple of these$"):
        leaves(space, "actions")
