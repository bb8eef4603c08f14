"""What every process of a sampler does first and last."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import select
import signal
import sys
from contextlib import suppress
from multiprocessing import current_process, parent_process
from typing import NoReturn

from sampler.process.bell import Bell


def prepare_child() -> None:
    """What every process of a sampler needs first."""
    # A process group of its own: Ctrl-C reaches only the caller, who decides what it means, and
    # whatever environments start and leave behind can be ended as a group.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # see `launch.start`
    wait_until_started()
    die_with_parent()
    # Daemonic for its parent, which ends it at exit, but free to start processes of its own.
    current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    if sys.stderr is not None:  # the caller's may be closed
        faulthandler.register(signal.SIGUSR1)


def end_own_group() -> NoReturn:
    """End this process, and what environments have left behind.

    The caller would do it, unless it is killed just then: with this process ends what listens for
    that.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # an environment may have closed or replaced it
            stream.flush()
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("unreachable")


def wait_until_started() -> None:
    """Wait until the caller has done all that starting this process takes.

    Until then it may still be about to tell of what it wrote to the pipe of `die_with_parent`,
    though that has been read: the kernel does so last. Where a start fails halfway, the pipe is
    closed.
    """
    started: Bell = current_process().started  # type: ignore[attr-defined]
    select.select([started.fd, parent_sentinel()], [], [])
    started.close()


def parent_sentinel() -> int:
    """The pipe that multiprocessing keeps to the parent; it reads as ended when that does."""
    parent = parent_process()
    assert parent is not None
    return parent.sentinel


def die_with_parent() -> None:
    """Have the kernel end this process group when the sampler's process ends, however that ends.

    The pipe that multiprocessing keeps to the parent reports its end as an event on it, for which
    the kernel can be told to send a signal: SIGKILL, which also ends a process that is stopped, or
    stuck in an environment's own code, and what the environments have started.
    """
    sentinel = parent_sentinel()
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(sentinel, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([sentinel], [], [], 0)[0]:
        os._exit(1)  # it ended before the signal was armed
