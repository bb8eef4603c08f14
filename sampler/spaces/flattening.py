"""Spaces as flat lists of named leaves.

The store keeps one array per leaf. A plain space has one leaf, named like its field (`obs`); a
Dict or Tuple has one leaf per entry, however deeply nested (`obs.camera`, `actions.0`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sampler.errors import ConfigError

PLAIN = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True)
class Leaf:
    """One array of a space: its name, the path to it, and its shape and dtype per step."""

    name: str
    path: tuple[str | int, ...]
    space: gym.Space
    shape: tuple[int, ...]
    dtype: np.dtype


def leaves(space: gym.Space, name: str) -> tuple[Leaf, ...]:
    """The leaves of `space` in a fixed order; names start with `name`.

    Raises ConfigError for a space that has no fixed-size array form (Text, Graph, Sequence, OneOf).
    """
    return tuple(_leaves(space, name, ()))


def _leaves(
    space: gym.Space, name: str, path: tuple[str | int, ...], siblings: tuple[str, ...] = ()
):
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            others = tuple(other for other in space.spaces if other != key)
            yield from _leaves(child, f"{name}.{key}", path + (key,), others if not path else ())
    elif isinstance(space, spaces.Tuple):
        for index, child in enumerate(space.spaces):
            yield from _leaves(child, f"{name}.{index}", path + (index,))
    elif isinstance(space, PLAIN):
        if space.dtype is None or space.shape is None:
            raise ConfigError(f"{name}: {space} has no dtype or shape; give it both")
        yield Leaf(name, path, space, tuple(space.shape), np.dtype(space.dtype))
    else:
        remedy = ""
        if siblings and name.startswith("obs"):
            wrapper = f"gymnasium.wrappers.FilterObservation(env, {list(siblings)})"
            remedy = f"; {wrapper} leaves this one out"
        raise ConfigError(
            f"{name}: {type(space).__name__} spaces have no fixed size; use Box, Discrete, "
            f"MultiDiscrete, MultiBinary, or a Dict or Tuple of these{remedy}"
        )


def flatten(space: gym.Space, value: Any) -> list[Any]:
    """The leaf values of `value`, in the order of `leaves(space, ...)`."""
    if isinstance(space, spaces.Dict):
        return [leaf for key, child in space.spaces.items() for leaf in flatten(child, value[key])]
    if isinstance(space, spaces.Tuple):
        return [
            leaf
            for child, part in zip(space.spaces, value, strict=True)
            for leaf in flatten(child, part)
        ]
    return [value]


def unflatten(space: gym.Space, values: Sequence[Any]) -> Any:
    """The inverse of `flatten`: a dict, a tuple or the single value, nested like `space`."""
    iterator = iter(values)

    def build(node: gym.Space) -> Any:
        if isinstance(node, spaces.Dict):
            return {key: build(child) for key, child in node.spaces.items()}
        if isinstance(node, spaces.Tuple):
            return tuple(build(child) for child in node.spaces)
        return next(iterator)

    return build(space)


def children(space: spaces.Dict | spaces.Tuple) -> dict[Any, gym.Space]:
    """The entries of a space by key or index."""
    return dict(space.spaces if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` (nested dicts and tuples) with `function` applied to every array in it."""
    if isinstance(value, dict):
        return {key: map_leaves(function, part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map_leaves(function, part) for part in value)
    return function(value)


def stack_frames(space: gym.Space, frame_stack: int) -> gym.Space:
    """The space the model sees when `frame_stack` single frames of `space` are stacked in front.

    `frame_stack=1` leaves the space alone. Raises ConfigError unless the space is one uint8 Box.
    """
    if frame_stack == 1:
        return space
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        raise ConfigError(
            f"frame_stack={frame_stack} needs an environment with one uint8 Box observation, "
            f"not {space}; stack inside the environment instead"
        )
    low = np.repeat(space.low[None], frame_stack, axis=0)
    high = np.repeat(space.high[None], frame_stack, axis=0)
    return spaces.Box(low, high, dtype=np.uint8)
