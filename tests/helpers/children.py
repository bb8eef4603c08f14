"""What processes started by tests do; importable there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

from sampler.process.child import prepare_child
from sampler.shm.shared import Shared
from sampler.worker.running import run_worker


def prepare(connection: Connection) -> None:
    """Become a sampler's process, say so, and end at the first word."""
    prepare_child()
    connection.send("prepared")
    connection.recv()


def tell_of_interruptions(connection: Connection) -> None:
    """Send its process group and whether SIGINT waits, before and after it is prepared."""

    def found() -> tuple[int, bool]:
        return os.getpgrp(), signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])

    before = found()
    prepare_child()
    connection.send((before, found()))


def work(shared: Shared, slot: int, outcome: Callable[[], None]) -> None:
    """Be a worker whose work is `outcome`."""
    counters = shared.counters.rollout[slot]
    run_worker(shared, slot, counters, lambda: f"worker {slot}", outcome)
