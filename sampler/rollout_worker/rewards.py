"""Copying rewards, as environments return them, into an array."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from sampler.errors import EnvError


def write_rewards(rewards: list[Any], target: np.ndarray) -> None:
    """Put one reward for each lane into `target`, float32 [lanes].

    Raises EnvError unless they are plain numbers; text and arrays of shape (1,) are not. None
    becomes NaN, and numbers beyond float32 become infinite; the later check for non-finite rewards
    refuses both.
    """
    try:
        target[...] = _as_floats(rewards)
    except (TypeError, ValueError):
        raise EnvError(f"rewards {rewards} are not all numbers; return floats") from None


def _as_floats(rewards: list[Any]) -> Any:
    """`rewards` for an array of float32. Raises TypeError for text and for arrays.

    Python's array makes numbers beyond float32 infinite without numpy's warning, in less time than
    it takes to switch that off.
    """
    if getattr(rewards[0], "ndim", 0):
        raise TypeError
    try:
        return array("f", rewards)
    except TypeError:
        if any(isinstance(reward, str | bytes) for reward in rewards):
            raise  # numpy would read the number that a text spells
        return rewards  # numpy accepts some types that Python's array refuses
