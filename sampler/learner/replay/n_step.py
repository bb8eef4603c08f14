"""n-step transitions inside stored rows, vectorised over rows and steps.

The transition that starts at step t of a row goes to observation t + k, where k is n, or fewer if
the episode ends before. Each one lies inside a single row: rows overlap by `overlap >= n - 1` steps
and a row contributes the starts t < T - overlap, so that its last n - 1 steps, whose windows run
over its end, start windows in the lane's next row, which repeats them. Every step of a lane thus
starts exactly one transition. A step with mask=False starts none. Neither does a step whose window
meets such a step without an episode's end before it (steps that were given up), because what
happened there is not known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sampler.errors import ConfigError


class Windows(NamedTuple):
    """n-step returns of windows, arrays of one shape.

    returns: sum of discounted rewards, float64. discounts: of the value after the window, 0 where
    it terminated, float64. lengths: steps in the window (k), int64; 0 where it starts at a masked
    step. valid: whether it is a transition, bool.
    """

    returns: np.ndarray
    discounts: np.ndarray
    lengths: np.ndarray
    valid: np.ndarray


def fold_windows(
    rewards: np.ndarray, discounts: np.ndarray, cuts: np.ndarray, mask: np.ndarray
) -> Windows:
    """Folds windows of n steps, [..., n], into one transition each, [...].

    rewards, discounts (gamma, or 0 at termination), cuts (the episode ended after this step, by any
    cause), mask (the step is real). A window ends after n steps or after its first cut.
    """
    n = rewards.shape[-1]
    shape = rewards.shape[:-1]
    returns, factor = np.zeros(shape), np.ones(shape)
    lengths = np.zeros(shape, np.int64)
    valid = np.ones(shape, bool)
    running = np.ones(shape, bool)
    for k in range(n):
        valid &= ~running | mask[..., k]
        running = running & mask[..., k]
        returns += np.where(running, factor * rewards[..., k], 0.0)
        factor = np.where(running, factor * discounts[..., k], factor)
        lengths += running
        running = running & ~cuts[..., k]
    return Windows(returns, factor, lengths, valid)


def n_step_windows(
    rewards: np.ndarray,
    discounts: np.ndarray,
    cuts: np.ndarray,
    mask: np.ndarray,
    n: int,
    overlap: int | None = None,
) -> Windows:
    """The transitions that start at each step of rows, [B, T]; all arguments are [B, T].

    `overlap`: steps that a row shares with the lane's next one, at least n - 1 (the default).
    Raises ConfigError if it is less.
    """
    overlap = n - 1 if overlap is None else overlap
    check_overlap(n, overlap, rewards.shape[1])
    windows = fold_windows(
        *(_windows(array, n) for array in (rewards, discounts, cuts, mask.astype(bool)))
    )
    windows.valid[:, rewards.shape[1] - overlap :] = False
    return windows


def check_overlap(n: int, overlap: int, rollout: int) -> None:
    """Raises ConfigError unless rows of `rollout` steps can hold every n-step transition."""
    if n < 1:
        raise ConfigError(f"n_step={n} must be at least 1")
    if overlap < n - 1:
        raise ConfigError(
            f"overlap={overlap} loses transitions of n_step={n}: set overlap={n - 1} (n - 1)"
        )
    if overlap >= rollout:
        raise ConfigError(
            f"rollout={rollout} must exceed overlap={overlap}: rows would have no new steps"
        )


def _windows(array: np.ndarray, n: int) -> np.ndarray:
    """[B, T, n] views of the steps t .. t+n-1, with zeros after the end."""
    padded = np.pad(array, ((0, 0), (0, n - 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, n, axis=1)
