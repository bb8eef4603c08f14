"""One anonymous block of shared memory, and the layout of the arrays inside it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from sampler.errors import ConfigError
from sampler.process.memory import available_memory

ALIGNMENT = 64  # bytes: a cache line, so that two arrays never share one


@dataclass(frozen=True)
class Field:
    """A named array: its full shape and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class Layout:
    """Where each field lies in an arena. Names are unique; every field starts on a cache line."""

    def __init__(self, fields: Iterable[Field]):
        self.fields: dict[str, tuple[int, Field]] = {}
        self.size = 0
        for field in fields:
            if field.name in self.fields:
                raise ConfigError(f"two arrays are called {field.name!r}; rename one")
            self.fields[field.name] = (self.size, field)
            self.size += -(-field.nbytes // ALIGNMENT) * ALIGNMENT


class Arena:
    """Shared memory from `memfd_create`, without a name, so a killed run leaves nothing behind.

    The creator really allocates the memory, so a later write can never fail. An arena sent to a
    child process is mapped there, too. Index it with a field's name to get the array.
    """

    def __init__(self, layout: Layout, remedy: str = "ask for less"):
        """Raises ConfigError, whose text ends in `remedy`, if the machine lacks the memory."""
        self.layout = layout
        size = max(layout.size, mmap.PAGESIZE)
        available = available_memory()
        if size > available:
            raise ConfigError(_refusal(size, remedy, f"{available / 2**20:,.0f} MiB are free"))
        try:
            self.fd = os.memfd_create("fastrl", os.MFD_CLOEXEC)
        except OSError as error:
            raise ConfigError(
                f"memfd_create refused ({error.strerror}); allow it (in a container: by its "
                "seccomp profile), or raise the limit of open files (ulimit -n)"
            ) from error
        try:
            os.ftruncate(self.fd, size)
            self._map()  # first, since it fails at once if the address space is limited
            os.posix_fallocate(self.fd, 0, size)
        except OSError as error:
            os.close(self.fd)
            raise ConfigError(_refusal(size, remedy, error.strerror)) from None

    def _map(self) -> None:
        self.memory = mmap.mmap(self.fd, max(self.layout.size, mmap.PAGESIZE))

    def __getitem__(self, name: str) -> np.ndarray:
        offset, field = self.layout.fields[name]
        flat = np.frombuffer(self.memory, field.dtype, prod(field.shape), offset)
        return flat.reshape(field.shape)

    def close(self) -> None:
        """Close the descriptor. The mapping is freed with the last array that refers to it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __getstate__(self) -> dict[str, Any]:
        return {"layout": self.layout, "fd": DupFd(self.fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.layout, self.fd = state["layout"], state["fd"].detach()
        self._map()


def scalars(array: Any) -> Any:
    """A view for reading and writing single elements, several times faster than numpy's."""
    return memoryview(array)


def _refusal(size: int, remedy: str, reason: str | None) -> str:
    return f"shared memory of {size / 2**20:,.0f} MiB refused ({reason}); {remedy}"
