"""Control words: commands of the caller to all workers, and the state of each worker."""

from __future__ import annotations

import numpy as np

from sampler.shm.arena import Arena, Field
from sampler.shm.words import NamedWords

STOP, PAUSE = range(2)
"""Words written by the caller and read by every worker at each turn of its loop; 0 or 1."""
PROCESS = ("pid", "ready", "restarts")
"""Words of each worker. The worker sets `ready` when its environments or its model are made; the
supervisor clears it before a new process starts, and writes the others."""
ROW_WORDS = 8  # a cache line


class Control:
    """The words `STOP` and `PAUSE`, and a row for each worker by its slot (see `Topology`)."""

    def __init__(self, arena: Arena):
        offset, field = arena.layout.fields["control"]
        words = memoryview(arena.memory).cast("q")
        start = offset // 8
        rows = [
            words[start + row * ROW_WORDS : start + (row + 1) * ROW_WORDS]
            for row in range(field.shape[0])
        ]
        self.words = rows[0]
        self.workers = [NamedWords(row, PROCESS) for row in rows[1:]]

    @property
    def stopped(self) -> bool:
        return bool(self.words[STOP])

    @property
    def paused(self) -> bool:
        return bool(self.words[PAUSE])

    @staticmethod
    def field(processes: int) -> Field:
        """int64 [1 + processes, ROW_WORDS]."""
        return Field("control", (1 + processes, ROW_WORDS), np.dtype(np.int64))
