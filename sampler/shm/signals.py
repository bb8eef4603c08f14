"""Signals between processes: bells to wake a sleeper, and requests for actions.

A request is a row of words in shared memory. The rollout worker writes what it wants and then a
new sequence number; the policy worker answers by echoing that number. Nothing is ever cleared, so
an answer that was meant for a process that has died cannot be mistaken for a fresh one.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from sampler.shm.arena import Field

# Words of a request; a full cache line each, so that no two groups write to the same one.
ASKED, ANSWERED, REFUSED, TOKEN, STEP, ROW = range(6)
REQUEST_WORDS = 8


class Bell:
    """An eventfd: any process may ring it, its owner sleeps until it rings."""

    def __init__(self) -> None:
        self._open(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def _open(self, fd: int) -> None:
        self.fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def fileno(self) -> int:
        return self.fd

    def ring(self) -> None:
        os.eventfd_write(self.fd, 1)

    def wait(self, timeout: float) -> bool:
        """Sleep until it rings or `timeout` seconds have passed; True if it rang."""
        if not self._poll.poll(timeout * 1000):
            return False
        self.hush()
        return True

    def hush(self) -> None:
        """Forget the rings so far."""
        if self.fd >= 0:  # else another thread has closed it
            with suppress(BlockingIOError):  # somebody who shares the bell was faster
                os.eventfd_read(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __getstate__(self) -> Any:
        return DupFd(self.fd)

    def __setstate__(self, state: Any) -> None:
        self._open(state.detach())


def request_field(groups: int) -> Field:
    """One request per group of lanes: int64 [groups, REQUEST_WORDS]."""
    return Field("requests", (groups, REQUEST_WORDS), np.dtype(np.int64))
