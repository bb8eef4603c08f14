"""Rewards as environments return them, on their way into an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from sampler.errors import EnvError


def write_rewards(rewards: list[Any], target: np.ndarray) -> None:
    """Put one reward for each lane into `target`, float32 [lanes].

    Raises EnvError where one is not a plain number: text, or an array of shape (1,). None becomes
    NaN, which is refused with whatever else is not finite.
    """
    # numpy would take the array of a single lane for the lanes themselves
    plain = len(rewards) != 1 or np.ndim(rewards[0]) == 0
    if plain:
        try:
            target[...] = rewards
        except (TypeError, ValueError):
            plain = False
    if not plain:
        raise EnvError(f"rewards {rewards} are not all numbers; return floats")


def check_finite(rewards: np.ndarray) -> None:
    """Raise EnvError for the first of `rewards` that is infinite or not a number."""
    finite = np.isfinite(rewards)
    if not finite.all():
        raise EnvError(
            f"reward {rewards[~finite][0]}; rewards must be finite: correct or clip them in the "
            "environment"
        )
