"""Writing observations into rows, and refusing those that break their own space."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from sampler.errors import EnvError
from sampler.spaces import Leaf, flatten, leaves


class ObservationWriter:
    """Copies observations leaf by leaf. Raises EnvError for one whose shape or dtype does not fit
    its space."""

    def __init__(self, space: gym.Space):
        self.space = space
        self.leaves = leaves(space, "obs")
        self._single = self.leaves[0] if not self.leaves[0].path else None

    def write(self, value: Any, targets: list[np.ndarray], *index: Any) -> None:
        """Copy `value` to `targets[leaf][index]`; shapes and dtypes must be those of the space."""
        if self._single is not None:
            targets[0][index] = self._checked(self._single, value)
            return
        try:
            parts = flatten(self.space, value)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise EnvError(
                f"observation {_brief(value)} is not nested like its space {self.space} "
                f"({type(error).__name__}: {error}); return every entry that the space has"
            ) from None
        for leaf, part, target in zip(self.leaves, parts, targets, strict=True):
            target[index] = self._checked(leaf, part)

    def _checked(self, leaf: Leaf, value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype == leaf.dtype and value.shape == leaf.shape:
            return value
        return checked_array(leaf, value, leaf.shape)


def checked_array(leaf: Leaf, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """`value` in the leaf's dtype, if its shape is right and the conversion loses nothing."""
    array = np.asarray(value)
    if array.shape != shape:
        raise EnvError(
            f"{leaf.name} has shape {array.shape} but its space {leaf.space} says {shape}; "
            "correct the environment's observation_space or what it returns"
        )
    if array.dtype == leaf.dtype:
        return array
    if array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            converted = array.astype(leaf.dtype)
        if np.array_equal(converted, array, equal_nan=array.dtype.kind == "f"):
            return converted
    raise EnvError(
        f"{leaf.name} has dtype {array.dtype} but its space says {leaf.dtype}, and a conversion "
        f"would change {_brief(value)}; return {leaf.dtype} or declare {array.dtype}"
    )


def outside(leaf: Leaf, rows: np.ndarray) -> tuple[int, ...] | None:
    """Where `rows` [lanes, steps, ...] first hold a value that the leaf's space does not allow.

    NaN is outside every Box.
    """
    space = leaf.space
    if isinstance(space, gym.spaces.Box):
        if leaf.dtype == np.uint8 and space.low.min() == 0 and space.high.max() == 255:
            return None  # every value is allowed
        bad = ~((rows >= space.low) & (rows <= space.high))
    elif isinstance(space, gym.spaces.Discrete):
        bad = (rows < space.start) | (rows >= space.start + space.n)
    elif isinstance(space, gym.spaces.MultiDiscrete):
        bad = (rows < space.start) | (rows >= space.start + space.nvec)
    else:
        bad = (rows != 0) & (rows != 1)
    if not bad.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))


def _brief(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."
