"""Noticing lanes that all play the same games, because their environment ignores its seed.

Digests of the lanes' first rows, and of the observations that their first two episodes begin with,
are compared. An environment without randomness looks alike in all lanes, too, but also from episode
to episode, so there is no warning then. An environment that begins every episode with the same
random numbers cannot be told from it, and goes unnoticed. One without randomness that shows the
number of its episode is warned about without need.
"""

from __future__ import annotations

import logging
from zlib import crc32

import numpy as np

from sampler.shm.store import FRAMES, StoreSpec

logger = logging.getLogger("fastrl")

WARNING = (
    "lanes 0 to %d play the same games, though one game differs from the next: the environment "
    "seems to ignore its seed; draw its random numbers from self.np_random, after "
    "super().reset(seed=seed)"
)


ENDS = ("rewards", "terminated", "truncated")
MOST_LANES = 4  # if their seeds make no difference, those of others make none
MOST_STEPS = 5_000  # of a lane, after which the search ends


class LikenessCheck:
    """Compares the first lanes of a worker by their finished rows, and warns at most once."""

    def __init__(self, spec: StoreSpec, lanes: int):
        """`lanes`: how many the worker has."""
        lanes = min(lanes, MOST_LANES)
        self._lanes = lanes
        self._steps = 0  # of the first lane
        self._observations = (
            [FRAMES] if spec.stacks_frames else [leaf.name for leaf in spec.observations]
        )
        self._newest = spec.frame_stack - 1  # entry of the first observation in a row
        self._actions = [leaf.name for leaf in spec.actions]
        self._rows: list[list[list[int]]] = [[] for _ in range(lanes)]  # what the lanes showed
        self._chosen: list[list[list[int]]] = [[] for _ in range(lanes)]  # their actions
        self._starts: list[list[list[int]]] = [[] for _ in range(lanes)]  # first observations
        self._episodes: list[int] = [0]  # digests of the first lane's; the last is in progress
        self._alike = True  # so far, in everything that all of them have shown
        self.done = lanes < 2

    def add(self, first: int, rows: dict[str, np.ndarray], begin: int) -> None:
        """Look at finished rows, arrays [lanes, ...], of the worker's lanes from `first` on.

        begin: the first transition that does not repeat an earlier row.
        """
        if self.done or first >= self._lanes:
            return
        steps = rows["rewards"].shape[1]
        self._steps += (steps - begin) * (first == 0)
        for lane in range(first, min(first + len(rows["rewards"]), self._lanes)):
            index = lane - first
            # The first entry of a later row is the last one of the row before.
            entries = begin + 1 if self._rows[lane] else begin
            starts = entries + np.flatnonzero(rows["age"][index, entries:] == 0)
            for entry in starts[: 2 - len(self._starts[lane])].tolist():
                self._starts[lane].append(self._observed(rows, index, entry, entry + 1))
            if self._alike:
                self._chosen[lane].append(
                    [digest(rows[name][index, begin:]) for name in self._actions]
                )
                if lane == 0:
                    self._follow(rows, begin, steps)
            self._rows[lane].append(self._led_to(rows, index, begin, steps) if self._alike else [])
        self._judge()

    def _observed(self, rows: dict[str, np.ndarray], lane: int, begin: int, end: int) -> list[int]:
        """Digests of observations `begin` to `end`."""
        shifted = slice(begin + self._newest, end + self._newest)
        return [digest(rows[name][lane, shifted]) for name in self._observations]

    def _led_to(self, rows: dict[str, np.ndarray], lane: int, begin: int, end: int) -> list[int]:
        """Digests of the results of transitions `begin` to `end`."""
        return [
            *self._observed(rows, lane, begin + 1, end + 1),
            *(digest(rows[name][lane, begin:end]) for name in ENDS),
        ]

    def _follow(self, rows: dict[str, np.ndarray], begin: int, end: int) -> None:
        """Update the digests of the first lane's episodes up to the end of its row.

        They leave out the first observation of an episode: see `_starts`.
        """
        for step in range(begin, end):
            if rows["age"][0, step + 1] == 0:
                self._episodes.append(0)
                continue
            shown = np.array(self._led_to(rows, 0, step, step + 1), np.uint32)
            self._episodes[-1] = digest(shown, self._episodes[-1])

    def _judge(self) -> None:
        """Decide whether to warn, as soon as the lanes have shown enough."""
        common = min(map(len, self._rows))
        if self._alike and not all(rows[:common] == self._rows[0][:common] for rows in self._rows):
            self._alike = False
        begun = min(map(len, self._starts))
        starts_alike = all(s[:begun] == self._starts[0][:begun] for s in self._starts)
        if not self._alike and not starts_alike:
            self.done = True
        elif begun == 2 and (starts_alike and self._starts[0][0] != self._starts[0][1]):
            self._warn()
        elif begun == 2 and not self._alike:
            self.done = True
        elif len(self._episodes) > 2 and common:
            # Lanes agree, but one episode differs from the next: randomness with the same seed.
            actions_differ = any(c[:common] != self._chosen[0][:common] for c in self._chosen)
            if self._episodes[0] != self._episodes[1] and actions_differ:
                self._warn()
            self.done = True
        elif self._steps > MOST_STEPS:
            self.done = True

    def _warn(self) -> None:
        logger.warning(WARNING, self._lanes - 1)
        self.done = True


def digest(array: np.ndarray, before: int = 0) -> int:
    """A checksum of an array's bytes, continued from `before`."""
    return crc32(np.ascontiguousarray(array).data, before)
