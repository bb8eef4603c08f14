"""A bell between processes: any of them rings it, its owner sleeps until it rings."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any

from sampler.errors import ConfigError


class Bell:
    """An eventfd: any process may ring it, its owner sleeps until it rings."""

    def __init__(self) -> None:
        """Raises ConfigError if the system refuses an eventfd."""
        try:
            fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError as error:
            raise ConfigError(
                f"eventfd refused ({error.strerror}); allow it (in a container: by its seccomp "
                "profile), raise the limit of open files (ulimit -n), or use fewer workers"
            ) from error
        self._open(fd)

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
        self.clear()
        return True

    def clear(self) -> None:
        """Forget the rings so far."""
        if self.fd >= 0:  # otherwise another thread has closed it
            with suppress(BlockingIOError):  # another process that shares the bell was faster
                os.eventfd_read(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __getstate__(self) -> Any:
        return DupFd(self.fd)

    def __setstate__(self, state: Any) -> None:
        self._open(state.detach())


class SilentBell(Bell):
    """The bell of a worker in the same process, which checks for work without being woken."""

    def __init__(self) -> None:
        self.fd = -1

    def ring(self) -> None:
        """Does nothing, since nobody sleeps."""

    def __reduce__(self) -> Any:
        return SilentBell, ()
