"""Figures that environments report in their infos: counts, sums, extremes and histograms.

Each rollout worker writes its own; nobody waits and nothing is locked. The sums exist twice, and
the copy that is not current is written, so that a reader finds sums that belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf, log2

import numpy as np

from sampler.shm.arena import Arena, Field
from sampler.shm.ordering import acquire, release

PER_OCTAVE = 4  # bins of a histogram between x and 2x
LOWEST, HIGHEST = -20, 30  # powers of two: smaller numbers count as 0, larger ones as these
SIDE = PER_OCTAVE * (HIGHEST - LOWEST)  # bins of each sign
BINS = 2 * SIDE + 1  # and one for 0
_POSITIVE = 2.0 ** (LOWEST + np.arange(SIDE + 1) / PER_OCTAVE)
EDGES: np.ndarray = np.concatenate((-_POSITIVE[::-1], _POSITIVE))
"""Bin i of a histogram counts the numbers from EDGES[i] to EDGES[i + 1], float64 [BINS + 1]."""
ATTEMPTS = 1000  # to read sums while their writer does not change them


@dataclass(frozen=True)
class Figures:
    """What was reported under one key since the sampler began."""

    count: int
    sum: float
    low: float
    """The smallest number; infinity before there is one."""
    high: float
    histogram: np.ndarray
    """int64 [BINS]: how many lie between each two of EDGES; zeros where none is kept."""


class InfoFigures:
    """The figures of all workers, by the number of the key."""

    def __init__(self, arena: Arena) -> None:
        self.sums = arena["info_sums"]  # [workers, 2, keys, 4]: count, sum, lowest, highest
        self.heads = arena["info_heads"]  # [workers]: copy n % 2 is current
        self.bins = arena["info_bins"]  # [workers, keys, BINS]

    @staticmethod
    def fields(workers: int, keys: int) -> list[Field]:
        """Nothing without keys."""
        if not keys:
            return []
        return [
            Field("info_sums", (workers, 2, keys, 4), np.dtype(np.float64)),
            Field("info_heads", (workers,), np.dtype(np.int64)),
            Field("info_bins", (workers, keys, BINS), np.dtype(np.int64)),
        ]

    def add(self, worker: int, sums: np.ndarray) -> None:
        """Add what a worker has counted since the last time, float64 [keys, 4], which must be from
        that worker alone."""
        head = int(self.heads[worker])
        before, after = self.sums[worker, head % 2], self.sums[worker, (head + 1) % 2]
        np.add(before[:, :2], sums[:, :2], out=after[:, :2])
        first = before[:, 0] == 0  # nothing was counted before: zeros are no extremes
        np.minimum(np.where(first, inf, before[:, 2]), sums[:, 2], out=after[:, 2])
        np.maximum(np.where(first, -inf, before[:, 3]), sums[:, 3], out=after[:, 3])
        release()
        self.heads[worker] = head + 1

    def read(self) -> list[Figures]:
        """Of every key, those of all workers together."""
        sums = np.stack([self._of_worker(worker) for worker in range(len(self.heads))])
        empty = sums[..., 0] == 0
        totals = sums[..., :2].sum(axis=0)
        low = np.where(empty, inf, sums[..., 2]).min(axis=0)
        high = np.where(empty, -inf, sums[..., 3]).max(axis=0)
        bins = self.bins.sum(axis=0)
        return [
            Figures(int(count), float(total), float(low[key]), float(high[key]), bins[key])
            for key, (count, total) in enumerate(totals)
        ]

    def _of_worker(self, worker: int) -> np.ndarray:
        for _ in range(ATTEMPTS):
            head = int(self.heads[worker])
            acquire()
            sums = self.sums[worker, head % 2].copy()
            acquire()
            if self.heads[worker] == head:  # otherwise this copy may have been overwritten
                return sums
        raise RuntimeError(f"the figures of worker {worker} change all the time")


def bin_of(value: float) -> int:
    """The bin that counts a finite number."""
    if abs(value) < _POSITIVE[0]:
        return SIDE
    place = min(floor(PER_OCTAVE * (log2(abs(value)) - LOWEST)), SIDE - 1)
    return SIDE + 1 + place if value > 0 else SIDE - 1 - place


def quantiles(histogram: np.ndarray, low: float, high: float, shares: list[float]) -> list[float]:
    """Numbers below which these shares of a histogram lie, as exact as its bins are fine.

    histogram: int [BINS], not empty; low, high: the bounds of what it counts.
    """
    cumulative = np.concatenate(([0], np.cumsum(histogram)))
    found = np.interp(np.asarray(shares) * cumulative[-1], cumulative, EDGES)
    return found.clip(low, high).tolist()
