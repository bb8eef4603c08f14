"""Rewards as environments return them, on their way into an array."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from sampler.errors import EnvError


def write_rewards(rewards: list[Any], target: np.ndarray) -> None:
    """Put one reward for each lane into `target`, float32 [lanes].

    Raises EnvError where they are no plain numbers: text, or arrays of shape (1,). None becomes
    NaN, and what is beyond float32 infinite; both are refused with all that is not finite.
    """
    if getattr(rewards[0], "ndim", 0) == 0:
        try:
            target[...] = _as_floats(rewards)
        except (TypeError, ValueError):
            pass
        else:
            return
    raise EnvError(f"rewards {rewards} are not all numbers; return floats")


def _as_floats(rewards: list[Any]) -> Any:
    """Rewards for an array of float32.

    An array of Python's makes those beyond float32 infinite without numpy's warning, in less time
    than it takes to switch that off.
    """
    try:
        return array("f", rewards)
    except TypeError:
        return rewards  # some are no numbers for Python; numpy takes them or refuses them
