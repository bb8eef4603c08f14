"""A lock that survives its holder: the kernel releases it when the process that holds it dies."""

from __future__ import annotations

import fcntl
import os
import threading
import time

from sampler.process.patience import Patience

SPINS = 20
RETRY_INTERVAL = 50e-6  # seconds
LONGEST_TRY = 1.0  # most seconds that one try counts, as this process may be stopped, too


class ProcessLock:
    """Mutual exclusion between processes (record lock on byte 0 of `fd`) and between threads.

    Not reentrant. Raises TimeoutError if the lock is not free within `timeout` seconds: its holder
    must then be stopped, since a dead one would have released it.
    """

    def __init__(self, fd: int, timeout: float = 60.0):
        self.fd = fd
        self.timeout = timeout
        self._threads = threading.Lock()

    def __enter__(self) -> None:
        if not self._threads.acquire(timeout=self.timeout):
            raise TimeoutError(f"a thread has held the row tokens for {self.timeout:.0f} s")
        try:
            self._lock_record()
        except BaseException:  # including KeyboardInterrupt after the lock was taken
            self._unlock()
            raise

    def _lock_record(self) -> None:
        for _ in range(SPINS):
            if self._try():
                return
            os.sched_yield()
        patience = Patience(LONGEST_TRY)
        while not self._try():
            if patience.look() > self.timeout:
                raise TimeoutError(f"a process has held the row tokens for {self.timeout:.0f} s")
            time.sleep(RETRY_INTERVAL)

    def _try(self) -> bool:
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except BlockingIOError:
            return False
        return True

    def __exit__(self, *exception: object) -> None:
        self._unlock()

    def _unlock(self) -> None:
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1)
        finally:
            self._threads.release()
