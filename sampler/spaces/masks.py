"""Action masks as flat bool arrays, without torch."""

from __future__ import annotations

from math import prod
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sampler.errors import EnvError
from sampler.spaces.flattening import children, leaves


def mask_size(space: gym.Space) -> int:
    """A: the length of a flat action mask (0: no part of the space can be masked).

    A Discrete space counts its n choices, MultiDiscrete the sum of its choices, MultiBinary its
    bits, Box nothing; Dict and Tuple add up their leaves.
    """
    return sum(_leaf_mask_size(leaf.space) for leaf in leaves(space, "actions"))


def flatten_mask(space: gym.Space, mask: Any, final: bool = False) -> np.ndarray:
    """An environment's action mask as one bool array [A]; True marks what may be chosen.

    Args:
        mask: an array of A entries, or nested like the space: an array for a Discrete leaf, an
            array or a tuple of arrays for a MultiDiscrete one, an array for a MultiBinary one
            (True: the bit may be 1; it may always be 0), anything or None for a Box. None for a
            leaf permits everything in it.
        final: the mask is that of an episode's last observation, after which there is no action; if
        it permits nothing, it counts as permitting everything.

    Raises EnvError where the sizes do not match, or no action is permitted.
    """
    if (isinstance(space, spaces.Dict) and isinstance(mask, dict)) or (
        isinstance(space, spaces.Tuple) and isinstance(mask, tuple | list)
    ):
        nested: Any = mask
        try:
            parts = [
                flatten_mask(child, nested[key], final) for key, child in children(space).items()
            ]
        except (KeyError, IndexError) as error:
            raise EnvError(f"the action mask has no entry {error} for {space}") from None
        return np.concatenate(parts)
    size = mask_size(space)
    if mask is None or size == 0:
        return np.ones(size, bool)
    flat = np.concatenate([np.ravel(part) for part in _arrays(mask)]).astype(bool)
    if flat.size != size:
        raise EnvError(f"the action mask has {flat.size} entries, but {space} needs {size}")
    if not _permits_one_of_each(space, flat):
        if final:
            return np.ones(size, bool)
        raise EnvError(f"the action mask permits no action of {space}; permit at least one")
    return flat


def _arrays(mask: Any) -> list[Any]:
    """The arrays of a mask given as an array or as nested tuples of arrays."""
    if isinstance(mask, tuple | list):
        return [array for part in mask for array in _arrays(part)]
    return [mask]


def _permits_one_of_each(space: gym.Space, mask: np.ndarray) -> bool:
    """Whether every choice that a leaf asks for has a permitted answer."""
    if isinstance(space, spaces.Discrete):
        return bool(mask.any())
    if isinstance(space, spaces.MultiDiscrete):
        ends = np.cumsum(space.nvec.ravel())
        return bool(np.logical_or.reduceat(mask, np.append(0, ends[:-1])).all())
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = list(children(space).values())
        masks = np.split(mask, np.cumsum([mask_size(part) for part in parts])[:-1])
        return all(map(_permits_one_of_each, parts, masks))
    return True


def _leaf_mask_size(space: gym.Space) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return prod(space.shape)
    return 0
