"""Trees over the priorities of replay, vectorised over batches of indices.

The leaves are one array; above it, every level holds the sums (or minima) of pairs, up to a level
of at most TOP nodes. That top is searched in its running sum in one call, which is cheaper than the
last dozen levels one by one. For 512 of a million leaves, `set` takes about 0.07 ms and `find`
0.13 ms on one core; there is no loop over indices.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

TOP = 4096


class _Levels:
    """Arrays of pairwise combined values: `levels[0]` the leaves, each next one half as long."""

    def __init__(self, capacity: int, combine: np.ufunc, empty: float) -> None:
        if capacity < 1:
            raise ValueError(f"capacity={capacity} must be at least 1")
        self.capacity = capacity
        self._combine = combine
        self._levels = [np.full(1 << (capacity - 1).bit_length(), empty)]
        while len(self._levels[-1]) > TOP:
            self._levels.append(np.full(len(self._levels[-1]) // 2, empty))

    @property
    def values(self) -> np.ndarray:
        """The leaves, float64 [capacity], a view that cannot be written to."""
        view = self._levels[0][: self.capacity]
        view.flags.writeable = False
        return view

    def get(self, index: Any) -> np.ndarray:
        """The leaves at `index` (integers of any shape), float64."""
        return self.values[index]

    def _set(self, index: np.ndarray, values: np.ndarray) -> None:
        if index.size and not 0 <= index.min() <= index.max() < self.capacity:
            raise IndexError(
                f"index {index.min()}..{index.max()} is outside the tree's 0..{self.capacity - 1}"
            )
        self._levels[0][index] = values  # of repeated indices, numpy keeps the last
        for children, parents in pairwise(self._levels):
            left = index & ~1
            index = index >> 1
            parents[index] = self._combine(children.take(left), children.take(left | 1))


class SumTree(_Levels):
    """Priorities [capacity], float64, with their running sum searchable in logarithmic time.

    Parents are recomputed from both children, never incremented, so no rounding error builds up.
    `max_recorded`: the largest priority ever set, at least 1: what new entries may start with.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.add, 0.0)
        self.max_recorded = 1.0
        self._top_sums: np.ndarray | None = None

    def set(self, index: Any, priority: Any) -> None:
        """Sets leaves; `index` and `priority` are numbers or arrays [n], the last of repeated
        indices counts. Raises ValueError unless 0 <= priority < inf, IndexError outside."""
        index = np.atleast_1d(np.asarray(index, np.int64))
        priority = np.broadcast_to(np.asarray(priority, np.float64), index.shape)
        if not index.size:
            return
        largest = priority.max()
        if not (priority.min() >= 0 and largest < np.inf):
            raise ValueError(f"priorities must be finite and not negative, got {priority}")
        self._set(index, priority)
        self.max_recorded = max(self.max_recorded, float(largest))
        self._top_sums = None

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._running()[-1])

    def find(self, cumulative: Any) -> np.ndarray:
        """For every target in [0, total) the smallest index i with target < p_0 + ... + p_i.

        `cumulative`: a number or an array; the result is int64 of the same shape. A leaf with
        priority 0 is never found. Raises ValueError for a target outside.
        """
        rest = np.asarray(cumulative, np.float64)
        sums = self._running()
        if rest.size and not (rest.min() >= 0 and rest.max() < sums[-1]):
            raise ValueError(
                f"targets {rest.min()}..{rest.max()} are outside [0, {sums[-1]}), the tree's sum"
            )
        node = sums.searchsorted(rest, side="right")
        # Never below 0, however the sums were rounded: an empty left leaf must not be entered.
        rest = np.maximum(rest - (sums.take(node) - self._levels[-1].take(node)), 0.0)
        for level in reversed(self._levels[:-1]):
            node = node << 1
            left = level.take(node)
            # Rounding may leave `rest` at the pair's sum: an empty right leaf must not be entered.
            right = (rest >= left) & (level.take(node | 1) > 0)
            rest = rest - left * right
            node = node + right
        return node

    def sample(self, n: int, generator: np.random.Generator, stratified: bool = True) -> np.ndarray:
        """n indices in proportion to their priorities, int64 [n], with replacement.

        Stratified: one from each of n equal parts of the sum, in ascending order, which lowers the
        variance. Raises ValueError where every priority is 0.
        """
        total = self.total
        if total == 0:
            raise ValueError("every priority is 0: nothing can be sampled")
        uniform = generator.random(n)
        targets = (uniform + np.arange(n)) * (total / n) if stratified else uniform * total
        return self.find(np.minimum(targets, np.nextafter(total, 0)))

    def _running(self) -> np.ndarray:
        """Running sum of the top level, computed when first needed after a change."""
        if self._top_sums is None:
            self._top_sums = self._levels[-1].cumsum()
        return self._top_sums


class MinTree(_Levels):
    """Values [capacity], float64, inf where not set, with their minimum."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, np.minimum, np.inf)

    def set(self, index: Any, value: Any) -> None:
        """Sets leaves; numbers or arrays [n], the last of repeated indices counts."""
        index = np.atleast_1d(np.asarray(index, np.int64))
        self._set(index, np.broadcast_to(np.asarray(value, np.float64), index.shape))

    def min(self, start: int = 0, stop: int | None = None) -> float:
        """The minimum of the leaves start..stop-1 (default: all)."""
        if start == 0 and stop is None:
            return float(self._levels[-1].min())
        return float(self.values[start:stop].min(initial=np.inf))
