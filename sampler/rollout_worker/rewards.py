"""Rewards as environments return them, on their way into an array."""

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

    Raises EnvError where they are no plain numbers: text, or arrays of shape (1,). None becomes
    NaN, and what is beyond float32 infinite; both are refused with all that is not finite.
    """
    if getattr(rewards[0], "ndim", 0) == 0:
        # Python's own array makes those beyond float32 infinite without numpy's warning, in less
        # time than it takes to switch that off. What are no numbers for Python may be for numpy.
        for convert in (_FLOATS, _numbers):
            try:
                target[...] = convert(rewards)
            except (TypeError, ValueError):
                continue
            return
    raise EnvError(f"rewards {rewards} are not all numbers; return floats")
