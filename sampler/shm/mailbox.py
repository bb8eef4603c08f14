"""What processes report beside the per-step path: finished episodes, and the error they died of.

Every ring and slot has one writer and one reader and no lock, so a killed writer blocks nobody.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sampler.shm.arena import Arena, Field

RING = 512  # episodes a worker may finish between two readings
ERROR_BYTES = 16 * 1024


class Episode(NamedTuple):
    """A finished whole game: its lane, raw score, and length in steps and emulator frames."""

    lane: int
    score: float
    length: int
    frames: int


class EpisodeRings:
    """One ring of finished episodes for each rollout worker."""

    def __init__(self, arena: Arena):
        self.entries = arena["episodes"]  # [workers, RING, 4]
        self.heads = arena["episode_heads"]  # [workers], episodes written so far
        self._read = np.zeros_like(self.heads)
        self.missed = 0

    @staticmethod
    def fields(workers: int) -> list[Field]:
        return [
            Field("episodes", (workers, RING, 4), np.dtype(np.float64)),
            Field("episode_heads", (workers,), np.dtype(np.int64)),
        ]

    def put(self, worker: int, lane: int, score: float, length: int, frames: int) -> None:
        head = int(self.heads[worker])
        self.entries[worker, head % RING] = (lane, score, length, frames)
        self.heads[worker] = head + 1

    def take(self) -> list[Episode]:
        """The episodes finished since the last call; those a full ring lost count as missed."""
        episodes = []
        for worker in np.flatnonzero(self.heads != self._read):
            head, tail = int(self.heads[worker]), int(self._read[worker])
            if head - tail > RING // 2:  # the older half may be overwritten while it is read
                self.missed += head - tail - RING // 2
                tail = head - RING // 2
            for lane, score, length, frames in self.entries[
                worker, np.arange(tail, head) % RING
            ].tolist():
                episodes.append(Episode(int(lane), score, int(length), int(frames)))
            self._read[worker] = head
        return episodes

    def state_dict(self) -> dict[str, Any]:
        """The rings, and how far they have been read."""
        return {
            "entries": self.entries,
            "heads": self.heads,
            "read": self._read,
            "missed": self.missed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.entries[:], self.heads[:] = state["entries"], state["heads"]
        self._read[:], self.missed = state["read"], state["missed"]


class ErrorSlots:
    """One slot per process for the text of the error that ends it."""

    def __init__(self, arena: Arena):
        self.text = arena["error_text"]  # [processes, ERROR_BYTES]
        self.size = arena["error_size"]  # [processes]

    @staticmethod
    def fields(processes: int) -> list[Field]:
        return [
            Field("error_text", (processes, ERROR_BYTES), np.dtype(np.uint8)),
            Field("error_size", (processes,), np.dtype(np.int64)),
        ]

    def put(self, process: int, text: str) -> None:
        encoded = text.encode(errors="replace")[-ERROR_BYTES:]
        self.text[process, : len(encoded)] = np.frombuffer(encoded, np.uint8)
        self.size[process] = len(encoded)

    def take(self, process: int) -> str:
        """The text, or "" if there is none; the slot is empty afterwards."""
        encoded = self.text[process, : int(self.size[process])].tobytes()
        self.size[process] = 0
        return encoded.decode(errors="replace")
