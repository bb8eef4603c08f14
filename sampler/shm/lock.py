"""A lock that survives its holder: the kernel releases it when the process that holds it dies."""

from __future__ import annotations

import fcntl
import os
import threading
import time

SPINS = 20
NAP = 50e-6  # seconds


class ProcessLock:
    """Mutual exclusion between processes (record lock on byte 0 of `fd`) and between threads.

    Not reentrant. A lock that cannot be had within `timeout` seconds raises TimeoutError: its
    holder is stopped, for it would have released it by dying.
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
        except BaseException:
            self._threads.release()
            raise

    def _lock_record(self) -> None:
        deadline = None
        tries = 0
        while True:
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
                return
            except BlockingIOError:
                pass
            tries += 1
            if tries < SPINS:
                os.sched_yield()
                continue
            now = time.monotonic()
            deadline = deadline or now + self.timeout
            if now > deadline:
                raise TimeoutError(f"a process has held the row tokens for {self.timeout:.0f} s")
            time.sleep(NAP)

    def __exit__(self, *exception: object) -> None:
        fcntl.lockf(self.fd, fcntl.LOCK_UN, 1)
        self._threads.release()
