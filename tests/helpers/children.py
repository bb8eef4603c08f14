"""What processes started by tests do; importable there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import current_process
from multiprocessing.connection import Connection

from sampler.process.child import end_own_group, prepare_child
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


def tell_of_itself(connection: Connection) -> None:
    """Send what has been prepared; then one word after another word came."""
    prepare_child()
    connection.send(
        {
            "group": os.getpgrp(),
            "ignores ctrl-c": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
            "blocks ctrl-c": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []),
            "daemonic": current_process().daemon,
        }
    )
    connection.recv()
    connection.send("still there")


def leave_something(connection: Connection) -> None:
    """Start a process, send its id, and at the next word write to a file and end."""
    prepare_child()
    with open(connection.recv(), "w") as sys.stdout:
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        connection.send(left.pid)
        connection.recv()
        sys.stdout.write("not flushed")
        end_own_group()


def work(shared: Shared, slot: int, outcome: Callable[[], None]) -> None:
    """Be a worker whose work is `outcome`."""
    counters = shared.counters.rollout[slot]
    run_worker(shared, slot, counters, lambda: f"worker {slot}", outcome)
