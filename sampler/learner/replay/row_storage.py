"""A ring of rows in preallocated memory or in an unnamed file, used by every replay."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from sampler.errors import ConfigError
from sampler.process.memory import available_memory

FieldSpecs = Mapping[str, tuple[tuple[int, ...], np.dtype | type]]
"""Name -> shape and dtype of a field's part in one row."""
Fields = dict[str, np.ndarray]

ALIGN = 4096


class RowStorage:
    """`capacity` rows, one array [capacity, *shape] per field; the oldest are overwritten.

    Rows have serial numbers from 0 in the order of their arrival. Row r is in slot r % capacity, so
    its number tells whether it is still stored. Copying a row in or out is one copy per field. Not
    thread-safe.
    """

    def __init__(
        self,
        fields: FieldSpecs,
        capacity: int,
        path: str | Path | None = None,
        remedy: str = "lower the capacity, or set a path to keep it on disk",
        max_bytes: int | None = None,
    ) -> None:
        """`path`: a directory for an unnamed file in place of memory, gone when the process ends.
        `max_bytes`: lowers the capacity to as many rows as fit into it; None: no bound.

        Raises ConfigError if the rows do not fit, with the bytes they need and `remedy`.
        """
        self.specs = {name: (tuple(s), np.dtype(d)) for name, (s, d) in fields.items()}
        of_row = {name: int(np.prod(s)) * d.itemsize for name, (s, d) in self.specs.items()}
        if max_bytes is not None:
            row = sum(of_row.values())
            if row > max_bytes:
                raise ConfigError(
                    f"a replay of {max_bytes:,} bytes holds no row, which has {row:,}: allow more"
                )
            capacity = min(capacity, max_bytes // row)
        if capacity < 1:
            raise ConfigError(f"replay capacity={capacity} rows must be at least 1")
        self.capacity = capacity
        self.added = 0
        """Rows ever added, also the serial number of the next one."""
        sizes = [-(-capacity * size // ALIGN) * ALIGN for size in of_row.values()]
        offsets = np.cumsum([0, *sizes])
        self.nbytes = int(offsets[-1])
        """Bytes reserved."""
        memory = self._in_memory(remedy) if path is None else self._in_file(Path(path), remedy)
        self.arrays: Fields = {}
        for (name, (shape, dtype)), offset in zip(self.specs.items(), offsets, strict=False):
            count = capacity * int(np.prod(shape))
            array = np.frombuffer(memory, dtype, count, int(offset))
            self.arrays[name] = array.reshape(capacity, *shape)

    def _in_memory(self, remedy: str) -> mmap.mmap:
        available = available_memory()
        if self.nbytes > available:
            raise ConfigError(self._too_large("memory", available, remedy))
        memory = mmap.mmap(-1, self.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)  # fewer faults while it fills, fewer misses later
        return memory

    def _in_file(self, directory: Path, remedy: str) -> mmap.mmap:
        try:
            with tempfile.TemporaryFile(dir=directory) as file:
                status = os.fstatvfs(file.fileno())
                available = status.f_bavail * status.f_frsize
                if self.nbytes > available:
                    raise ConfigError(self._too_large(f"disk in {directory}", available, remedy))
                os.posix_fallocate(file.fileno(), 0, self.nbytes)
                return mmap.mmap(file.fileno(), self.nbytes)
        except OSError as error:
            raise ConfigError(
                f"replay path {str(directory)!r}: {error.strerror}; give a writable directory"
            ) from error

    def _too_large(self, where: str, available: int, remedy: str) -> str:
        return (
            f"replay of {self.capacity:,} rows needs {self.nbytes / 2**30:.2f} GiB and "
            f"{available / 2**30:.2f} GiB of {where} are free: {remedy}"
        )

    @property
    def size(self) -> int:
        """Rows stored now."""
        return min(self.added, self.capacity)

    def __len__(self) -> int:
        return self.size

    @property
    def full(self) -> bool:
        """Whether the next row takes the place of another."""
        return self.size == self.capacity

    def slots(self, rows: np.ndarray) -> np.ndarray:
        """The slots of serial numbers."""
        return rows % self.capacity

    def rows(self, slots: np.ndarray) -> np.ndarray:
        """The serial numbers of what is in `slots` now."""
        head = self.added % self.capacity
        return slots + (self.added - head) - np.where(slots < head, 0, self.capacity)

    def stored(self, rows: np.ndarray) -> np.ndarray:
        """Which serial numbers have not been overwritten, bool."""
        return (rows >= self.added - self.capacity) & (rows < self.added) & (rows >= 0)

    def add(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Copies rows [n, *shape] in; returns their serial numbers, int64 [n].

        Entries of `fields` that the storage does not have are ignored. Of more rows than the
        capacity only the last are kept.
        """
        first = next(iter(self.specs))
        n = len(fields[first])
        rows = np.arange(self.added, self.added + n)
        start = max(n - self.capacity, 0)
        while start < n:
            slot = (self.added + start) % self.capacity
            stop = min(n, start + self.capacity - slot)
            for name, array in self.arrays.items():
                array[slot : slot + stop - start] = fields[name][start:stop]
            start = stop
        self.added += n
        return rows

    def take(self, slots: np.ndarray, out: Fields | None = None) -> Fields:
        """Copies the rows in `slots` [n] to `out` (see `buffers`), or to new arrays."""
        out = self.buffers(len(slots)) if out is None else out
        for name, array in self.arrays.items():
            # Any other mode than "raise" lets numpy write to `out` without a copy in between.
            np.take(array, slots, axis=0, out=out[name], mode="clip")
        return out

    def buffers(self, n: int) -> Fields:
        """Empty arrays [n, *shape] for `take`, to be used again and again."""
        return {name: np.empty((n, *s), d) for name, (s, d) in self.specs.items()}

    def state_dict(self) -> Fields:
        """The complete state, as arrays: views of the rows stored (`rows.NAME`), `added`,
        `capacity`."""
        state = {f"rows.{name}": array[: self.size] for name, array in self.arrays.items()}
        return {**state, "added": np.array(self.added), "capacity": np.array(self.capacity)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Copies the rows of another storage's `state_dict()`, slot for slot.

        Raises ConfigError if capacity or fields differ.
        """
        if int(state["capacity"]) != self.capacity:
            raise ConfigError(
                f"the saved replay holds {int(state['capacity'])} rows and this one "
                f"{self.capacity}; use the saved capacity"
            )
        for name, array in self.arrays.items():
            saved = state.get(f"rows.{name}")
            if saved is None or (saved.shape[1:], saved.dtype) != (array.shape[1:], array.dtype):
                found = "no such field" if saved is None else f"{saved.dtype} {saved.shape[1:]}"
                raise ConfigError(
                    f"replay field {name!r} is {array.dtype} {array.shape[1:]} here and {found} in "
                    "the saved replay; resume with the settings it was saved with"
                )
        for name, array in self.arrays.items():
            saved = state[f"rows.{name}"]
            array[: len(saved)] = saved
        self.added = int(state["added"])
