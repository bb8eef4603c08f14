"""Counting steps that are too old to be learned from, with a warning if most of them are."""

from __future__ import annotations

import logging
from collections import deque

import numpy as np

logger = logging.getLogger("fastrl")

PATIENCE = 20  # batches that the warning looks at


class StaleSteps:
    """Counts the steps that `max_policy_lag` leaves out, and warns once if it leaves out most."""

    def __init__(self, max_policy_lag: int) -> None:
        self.max_policy_lag = max_policy_lag
        self.count = 0
        """Steps left out so far."""
        self._recent: deque[tuple[int, int]] = deque(maxlen=PATIENCE)  # left out, and real
        self._warned = False

    def fresh(self, lag: np.ndarray, real: np.ndarray) -> np.ndarray:
        """[B, T] bool: the real steps of a batch that are not too old.

        lag: [B, T] versions between acting and now; real: [B, T] bool.
        """
        kept = real & (lag <= self.max_policy_lag)
        steps = int(real.sum())
        stale = steps - int(kept.sum())
        self.count += stale
        self._recent.append((stale, steps))
        if not self._warned and len(self._recent) == PATIENCE:
            self._warn_of_most()
        return kept

    def _warn_of_most(self) -> None:
        stale, steps = np.sum(self._recent, axis=0)
        if 2 * stale > steps:
            self._warned = True
            logger.warning(
                "max_policy_lag=%d leaves out %.0f%% of the steps of the last %d batches: raise "
                "it, or use fewer environments, a larger batch or fewer minibatches",
                self.max_policy_lag,
                100 * stale / steps,
                PATIENCE,
            )
