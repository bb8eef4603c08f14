"""Copying rewards, as environments return them, into an array."""

from __future__ import annotations

from array import array
from functools import partial
from typing import Any

import numpy as np

from sampler.errors import EnvError

_FLOATS = partial(array, "f")


def _numbers(rewards: list[Any]) -> list[Any]:
    if any(isinstance(reward, str | bytes) for reward in rewards):
        raise TypeError  # numpy would read the number that a text spells
    return rewards


def write_rewards(rewards: list[Any], target: np.ndarray) -> None:
    """Put one reward for each lane into `target`, float32 [lanes].

    Raises EnvError unless they are plain numbers; text and arrays of shape (1,) are not. None
    becomes NaN, and numbers beyond float32 become infinite; the later check for non-finite rewards
    refuses both.
    """
    if getattr(rewards[0], "ndim", 0) == 0:
        # Python's array makes numbers beyond float32 infinite without numpy's warning, in less time
        # than it takes to switch that off. numpy accepts some types that Python's array refuses.
        for convert in (_FLOATS, _numbers):
            try:
                target[...] = convert(rewards)
            except (TypeError, ValueError):
                continue
            return
    raise EnvError(f"rewards {rewards} are not all numbers; return floats")
