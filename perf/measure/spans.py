"""What each process of a sampler does when, read from the heartbeats in shared memory.

Every process publishes its stage, and since when, in a row of words. A watcher in a process of its
own reads all rows some thousands of times a second, without disturbing the others. A change that it
sees late still carries the time at which it happened. Stages shorter than its period may be missed.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sampler.shm.counters import POLICY, Stage

PERIOD = 0.0004  # seconds between two readings
STAGE, SINCE = POLICY.index("stage"), POLICY.index("stage_since")

Interval = tuple[float, float]
"""Begin and end, seconds."""


@dataclass(frozen=True)
class Span:
    """One process in one stage; times in seconds since the recording began."""

    row: int
    """Row of the counters: 0 the learner, then rollout workers, then policy workers."""
    stage: Stage
    begin: float
    end: float


def _watch(shared: Any, stop: Any, connection: Any) -> None:
    words = shared.arena["counters"]
    heartbeats = words[:, STAGE : SINCE + 1]
    changes: list[np.ndarray] = []  # each: [rows that changed, (row, stage, since)]
    known = np.zeros(len(words), np.int64)
    connection.send("ready")
    while not stop.is_set():
        first, second = heartbeats.copy(), heartbeats.copy()
        # The two words are written one after the other: trust a row that reads twice the same.
        changed = (first == second).all(axis=1) & (first[:, 1] != known)
        if changed.any():
            rows = np.flatnonzero(changed)
            changes.append(np.column_stack((rows, first[rows])))
            known[rows] = first[rows, 1]
        time.sleep(PERIOD)
    connection.send(np.concatenate(changes) if changes else np.zeros((0, 3), np.int64))


class Recording:
    """Records while its block runs; `spans` holds the result afterwards."""

    def __init__(self, sampler: Any):
        self._shared = sampler._shared
        self.spans: list[Span] = []
        self.seconds = 0.0

    def __enter__(self) -> Recording:
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._results, results = context.Pipe(duplex=False)
        self._watcher = context.Process(
            target=_watch, args=(self._shared, self._stop, results), daemon=True
        )
        self._watcher.start()
        self._results.recv()
        self._began = time.monotonic_ns()
        return self

    def __exit__(self, *error: object) -> None:
        ended = time.monotonic_ns()
        self._stop.set()
        if error[0] is None:
            changes = self._results.recv()
            self.spans = spans(changes, self._began, ended)
            self.seconds = (ended - self._began) * 1e-9
        self._watcher.join(timeout=10)


def spans(changes: np.ndarray, began: int, ended: int) -> list[Span]:
    """Spans from [n, (row, stage, since in nanoseconds)], clipped to the recording's time."""
    result = []
    for row in np.unique(changes[:, 0]):
        own = changes[changes[:, 0] == row]
        begins = np.clip(own[:, 2], began, ended)
        ends = np.append(begins[1:], ended)
        result += [
            Span(int(row), Stage(stage), (begin - began) * 1e-9, (end - began) * 1e-9)
            for stage, begin, end in zip(
                own[:, 1].tolist(), begins.tolist(), ends.tolist(), strict=True
            )
            if end > begin
        ]
    return result


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same times as disjoint intervals in order."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def length(intervals: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)


def common(left: Sequence[Interval], right: Sequence[Interval]) -> float:
    """Seconds in both; each is disjoint and in order."""
    total, i, j = 0.0, 0, 0
    while i < len(left) and j < len(right):
        total += max(0.0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return total


KINDS = {
    "stepping": (Stage.STEPPING,),
    "inference": (Stage.GATHERING, Stage.INFERENCE, Stage.WRITING, Stage.LOADING_WEIGHTS),
    "learning": (Stage.LEARNING,),
}


def overlap(recorded: Sequence[Span]) -> dict[str, float]:
    """How much work is done at the same time.

    `overlap` is how many of stepping, inference and learning are done at once, on average, while
    any is: 1 if they take turns, at most the number of kinds that occur. `inference_while_stepping`
    and `learning_while_stepping` are the shares of those times in which environments are stepped
    too.
    """
    busy = {
        kind: union((s.begin, s.end) for s in recorded if s.stage in stages)
        for kind, stages in KINDS.items()
    }
    anything = length(union(interval for intervals in busy.values() for interval in intervals))
    result = {"overlap": sum(map(length, busy.values())) / anything if anything else 0.0}
    for kind in ("inference", "learning"):
        time_of_kind = length(busy[kind])
        shared = common(busy["stepping"], busy[kind])
        result[f"{kind}_while_stepping"] = shared / time_of_kind if time_of_kind else 0.0
    return result
