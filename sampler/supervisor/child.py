"""What every worker process does first, and how it reports the error that ends it."""

from __future__ import annotations

import faulthandler
import fcntl
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing import current_process, parent_process

from sampler.errors import FastrlError
from sampler.shm.counters import CounterRow, Stage
from sampler.shm.shared import Shared


def run_child(
    shared: Shared,
    slot: int,
    counters: CounterRow,
    name: Callable[[], str],
    body: Callable[[], None],
) -> None:
    """Run `body` in a worker process; leave a report and exit with 1 if it raises.

    `slot` is the process's error slot; `name()` says what it was doing, for the report.
    """
    # A process group of its own: Ctrl-C reaches only the caller, who decides what it means, and
    # whatever environments start and leave behind can be ended as a group.
    os.setpgid(0, 0)
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Daemonic for its parent, which ends it at exit, but free to start processes of its own.
    current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    faulthandler.register(signal.SIGUSR1)
    counters["pid"] = os.getpid()
    counters.enter(Stage.STARTING)
    try:
        body()
    except Exception as error:
        shared.errors.put(slot, report(name(), error))
        counters.enter(Stage.STOPPED)
        sys.exit(1)
    counters.enter(Stage.STOPPED)


def report(name: str, error: Exception) -> str:
    """An error as text that `parse_report` reads: its kind, one line, and the traceback."""
    message = " ".join(str(error).split())
    kind = type(error).__name__
    line = message if isinstance(error, FastrlError) else f"{kind}: {message}"
    return json.dumps(
        {"kind": kind, "message": f"{name}: {line}", "traceback": traceback.format_exc()[-8000:]}
    )


def die_with_parent() -> None:
    """Have the kernel end this process group when the sampler's process ends, however that ends.

    The pipe that multiprocessing keeps to the parent reports its end as an event on it, for which
    the kernel can be told to send a signal: SIGKILL, which also ends a process that is stopped, or
    stuck in an environment's own code, and what the environments have started.
    """
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(sentinel, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([sentinel], [], [], 0)[0]:
        os._exit(1)  # it ended before the signal was armed
