"""Published weights: one flat block, two copies, a version and a checksum.

The writer fills the copy that is not current and then makes it current, so it never waits for a
reader. A reader copies the current block out and keeps it only if the copy still carries the same
version on both sides and the checksum fits; otherwise it reads again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sampler.shm.arena import Arena, Field
from sampler.shm.ordering import acquire, release

LATEST = 0  # word: the version last published; copy v % 2 holds version v
BEGUN, ENDED, CHECKSUM = range(3)  # words of each copy
NOTHING = -1


class WeightStore:
    """One writer (the learner), any number of readers (the policy workers).

    The copies lie in the arena, or on a GPU that the processes share; versions and checksums are
    in the arena.
    """

    def __init__(self, arena: Arena, on_device: Any = None):
        """`on_device`: the copies as an int64 tensor [2, words] on a GPU; None: they are in the
        arena."""
        self.latest = arena["weights_latest"]  # [1]
        self.marks = arena["weights_marks"]  # [2, 3]
        self.copies: Any = arena["weights"] if on_device is None else on_device  # [2, words]

    @staticmethod
    def fields(nbytes: int) -> list[Field]:
        words = max(1, -(-nbytes // 8))
        return [
            Field("weights_latest", (1,), np.dtype(np.int64)),
            Field("weights_marks", (2, 3), np.dtype(np.int64)),
            Field("weights", (2, words), np.dtype(np.int64)),
        ]

    def reset(self) -> None:
        """Mark that nothing is published yet; called once, by the process that makes the arena."""
        self.latest[0] = NOTHING
        self.marks[:] = NOTHING

    @property
    def version(self) -> int:
        """The version last published; -1 before the first."""
        return int(self.latest[0])

    def begin(self) -> Any:
        """The block to write the next version into, int64 [words]; then call `publish`."""
        version = self.version + 1
        self.marks[version % 2, BEGUN] = version
        release()
        return self.copies[version % 2]

    def publish(self) -> int:
        """Make the block from `begin` current; returns its version."""
        version = self.version + 1
        copy = version % 2
        self.marks[copy, CHECKSUM] = checksum(self.copies[copy])
        release()
        self.marks[copy, ENDED] = version
        release()
        self.latest[0] = version
        return version

    def read(self, out: Any) -> int:
        """Copy the newest whole version into `out`, int64 [words]; returns its version.

        Raises RuntimeError if no whole version can be read, which means that memory was damaged.
        """
        for _ in range(1000):
            version = self.version
            acquire()
            copy = version % 2
            out[:] = self.copies[copy]
            acquire()
            begun, ended, expected = self.marks[copy].tolist()
            if begun == ended == version and checksum(out) == expected:
                return version
        raise RuntimeError(f"weights of version {self.version} do not match their checksum")


def checksum(block: Any) -> int:
    """Sum of the 64-bit words, modulo 2**64: fast, and sensitive to any torn or stale word.

    On a GPU it also waits for the copy that it follows.
    """
    return int(block.sum())
