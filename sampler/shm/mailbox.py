"""What processes report outside the per-step path: finished games, and the error that ended them.

Every ring and slot has one writer, one reader and no lock, so a killed writer blocks nobody.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sampler.shm.arena import Arena, Field, scalars
from sampler.shm.ordering import acquire, release

RING = 512  # games of a worker that are kept between two readings
ATTEMPTS = 1000  # to read sums while their writer does not change them
ERROR_BYTES = 16 * 1024


class Episode(NamedTuple):
    """A finished whole game: its lane, raw score, and length in steps and emulator frames."""

    lane: int
    score: float
    length: int
    frames: int


class GameTotals(NamedTuple):
    """All games finished so far: how many, and the sums of their scores, steps and frames."""

    games: int
    score: float
    length: int
    frames: int


class EpisodeRings:
    """For each rollout worker, sums over its finished games and a ring of the last ones.

    The sums cover all games exactly. If more than RING games end between two readings, the ring
    keeps a random sample of RING of them: every game is equally likely to be in it, whatever its
    lane and length.
    """

    def __init__(self, arena: Arena):
        self.entries = arena["episodes"]  # [workers, RING, 4]
        self.numbers = arena[
            "episode_numbers"
        ]  # [workers, RING], which game it is; 0: being written
        self.heads = arena["episode_heads"]  # [workers], games finished so far
        self.totals = arena["episode_totals"]  # [workers, 2, 4], copy n % 2 is of the first n games
        self.reads = arena["episode_reads"]  # [workers], games that the reader has had or missed
        self.missed = 0
        self._taken = np.zeros((len(self.heads), 4))  # sums of the first `reads` games
        self._numbers, self._heads = scalars(self.numbers), scalars(self.heads)
        self._totals, self._reads = scalars(self.totals), scalars(self.reads)

    @staticmethod
    def fields(workers: int) -> list[Field]:
        float64, int64 = np.dtype(np.float64), np.dtype(np.int64)
        return [
            Field("episodes", (workers, RING, 4), float64),
            Field("episode_numbers", (workers, RING), int64),
            Field("episode_heads", (workers,), int64),
            Field("episode_totals", (workers, 2, 4), float64),
            Field("episode_reads", (workers,), int64),
        ]

    # ---- the worker

    def put(self, worker: int, lane: int, score: float, length: int, frames: int) -> None:
        """Report a finished game."""
        head = self._heads[worker]
        number = head + 1
        slot = self._slot(head, head - self._reads[worker])
        if slot < RING:
            self._numbers[worker, slot] = 0
            release()
            self.entries[worker, slot] = (lane, score, length, frames)
            release()
            self._numbers[worker, slot] = number
        totals, before, after = self._totals, head % 2, number % 2
        for i, amount in enumerate((1, score, length, frames)):
            totals[worker, after, i] = totals[worker, before, i] + amount
        release()
        self._heads[worker] = number

    @staticmethod
    def _slot(head: int, unread: int) -> int:
        """The slot for the next game; RING or more if it is left out (reservoir sampling)."""
        return head % RING if unread < RING else scramble(head) % (unread + 1)

    # ---- the learner's process

    def take(self) -> list[Episode]:
        """The games finished since the last call, those of each worker in the order of time.

        If a worker finished more than RING, they are a sample; the others count as missed.
        """
        episodes = []
        for worker in np.flatnonzero(self.heads != self.reads).tolist():
            (head, self._taken[worker]), read = self._sums(worker), int(self.reads[worker])
            numbers = self.numbers[worker].copy()
            acquire()
            entries = self.entries[worker].copy()
            acquire()
            # Only games not overwritten meanwhile, not read before, and already counted.
            whole = (numbers == self.numbers[worker]) & (numbers > read) & (numbers <= head)
            slots = np.flatnonzero(whole)
            slots = slots[np.argsort(numbers[slots])]
            for lane, score, length, frames in entries[slots].tolist():
                episodes.append(Episode(int(lane), score, int(length), int(frames)))
            self.missed += head - read - len(slots)
            self.reads[worker] = head
        return episodes

    def total(self) -> GameTotals:
        """Sums over all games of all workers, including those not taken yet."""
        return _total(np.array([self._sums(worker)[1] for worker in range(len(self.heads))]))

    def taken(self) -> GameTotals:
        """Sums over the games of all workers that were taken or missed."""
        return _total(self._taken)

    def _sums(self, worker: int) -> tuple[int, np.ndarray]:
        """The number of games that a worker has finished at one moment during this call, and their
        sums."""
        for _ in range(ATTEMPTS):
            head = int(self.heads[worker])
            acquire()
            total = self.totals[worker, head % 2].copy()
            acquire()
            if self.heads[worker] == head:  # otherwise this copy may have been overwritten
                return head, total
        raise RuntimeError(f"the sums of worker {worker}'s games change all the time")

    # ---- saving and restoring

    def state_dict(self) -> dict[str, Any]:
        """The rings, how far they have been read, and the sums."""
        return {
            "entries": self.entries,
            "heads": self.heads,
            "read": self.reads,
            "missed": self.missed,
            "numbers": self.numbers,
            "totals": self.totals,
            "taken": self._taken,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state. One without sums begins with sums of 0 and its ring in
        order."""
        self.entries[:], self.heads[:] = state["entries"], state["heads"]
        self.reads[:], self.missed = state["read"], state["missed"]
        heads = self.heads[:, None]
        in_order = heads - (heads - 1 - np.arange(RING)) % RING  # the last game of each slot
        self.numbers[:] = state.get("numbers", in_order)
        self.totals[:], self._taken[:] = state.get("totals", 0.0), state.get("taken", 0.0)


def _total(sums: np.ndarray) -> GameTotals:
    """The sums of all workers, [workers, 4]."""
    games, score, length, frames = sums.sum(axis=0).tolist()
    return GameTotals(int(games), score, int(length), int(frames))


def scramble(number: int) -> int:
    """A random-looking 64-bit number that depends on `number` alone (the function of splitmix64),
    so that the same games give the same sample."""
    number = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
    return number ^ number >> 31


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
        release()
        self.size[process] = len(encoded)

    def take(self, process: int) -> str:
        """The text, or "" if there is none; the slot is empty afterwards."""
        size = int(self.size[process])
        acquire()
        encoded = self.text[process, :size].tobytes()
        self.size[process] = 0
        return encoded.decode(errors="replace")
