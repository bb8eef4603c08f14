"""Always-on statistics: one row of int64 words per process.

Each row has one writer at a time: its process, or while a worker has no process, the supervisor,
which counts what was lost with the dead one. Any process may read at any time. `stage` and
`stage_since` are the heartbeat: what the process is doing, and since when.
"""

from __future__ import annotations

import time
from enum import IntEnum

import numpy as np

from sampler.shm.arena import Arena, Field
from sampler.shm.words import NamedWords

WORDS = 24  # per process


class Stage(IntEnum):
    """What a process is doing."""

    STARTING = 0
    WAITING = 1
    STEPPING = 2
    WAITING_FOR_ROWS = 3
    GATHERING = 4
    INFERENCE = 5
    WRITING = 6
    LOADING_WEIGHTS = 7
    PAUSED = 8
    LEARNING = 9
    STOPPED = 10


HEARTBEAT = ("stage", "stage_since")
ROLLOUT = HEARTBEAT + (
    "steps",
    "frames",
    "episodes",
    "masked_steps",
    "lost_steps",
    "lane",
    "step_ns",
    "wait_ns",
    "token_wait_ns",
)
POLICY = HEARTBEAT + (
    "version",
    "batches",
    "observations",
    "weight_loads",
    "wait_ns",
    "gather_ns",
    "inference_ns",
    "write_ns",
    "weights_ns",
)
LEARNER = HEARTBEAT + (
    "version",
    "batches",
    "abandoned_rows",
    "publishes",
    "wait_ns",
    "publish_ns",
)
LEARNER_ROW = 0


class CounterRow(NamedWords):
    """The counters of one process."""

    def add(self, name: str, amount: int) -> None:
        self.words[self.index[name]] += amount

    def enter(self, stage: Stage) -> int:
        """Publish the heartbeat; returns the time in nanoseconds (monotonic)."""
        now = time.monotonic_ns()
        self.words[0], self.words[1] = stage, now
        return now

    @property
    def counts(self) -> list[str]:
        """Names of the words that count events, without times and the present stage."""
        others = (*HEARTBEAT, "lane")
        return [n for n in self.index if n not in others and not n.endswith("_ns")]


class Counters:
    """The rows of all processes: the learner's, then rollout workers, then policy workers."""

    def __init__(self, arena: Arena, workers: int, policy_workers: int):
        rows = memoryview(arena.memory).cast("q")
        offset = arena.layout.fields["counters"][0] // 8

        def row(position: int, names: tuple[str, ...]) -> CounterRow:
            start = offset + position * WORDS
            return CounterRow(rows[start : start + WORDS], names)

        self.learner = row(LEARNER_ROW, LEARNER)
        self.rollout = [row(1 + index, ROLLOUT) for index in range(workers)]
        self.policy = [row(1 + workers + index, POLICY) for index in range(policy_workers)]

    def state_dict(self) -> list[dict[str, int]]:
        """The counts of every row."""
        rows = [self.learner, *self.rollout, *self.policy]
        return [{name: row[name] for name in row.counts} for row in rows]

    def load_state_dict(self, state: list[dict[str, int]]) -> None:
        """Continue counting from saved counts."""
        for row, counts in zip([self.learner, *self.rollout, *self.policy], state, strict=True):
            for name, count in counts.items():
                row[name] = count

    @staticmethod
    def field(workers: int, policy_workers: int) -> Field:
        return Field("counters", (1 + workers + policy_workers, WORDS), np.dtype(np.int64))
