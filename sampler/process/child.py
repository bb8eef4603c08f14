"""How every process of a sampler begins and ends."""

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
    """Set up the process group, signals and output of a process of a sampler."""
    # A process group of its own: Ctrl-C reaches only the caller, which decides what to do, and
    # processes that environments start and leave behind can be ended as a group.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # see `launch.start`
    wait_until_started()
    die_with_parent()
    # The parent treats it as daemonic and ends it at exit; it may still start processes.
    current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    if sys.stderr is not None:  # the caller's may be closed
        faulthandler.register(signal.SIGUSR1)


def end_own_group() -> NoReturn:
    """End this process and the processes that environments have left behind.

    The caller would end those too, but it may be killed at this moment, and once this process is
    gone nothing would notice that.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # an environment may have closed or replaced it
            stream.flush()
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("unreachable")


def wait_until_started() -> None:
    """Wait until the caller has finished starting this process.

    Until then, the kernel may still signal that something was written to the pipe of
    `die_with_parent`, even after it has been read here. If a start fails halfway, the pipe is
    closed.
    """
    started: Bell = current_process().started  # type: ignore[attr-defined]
    select.select([started.fd, parent_sentinel()], [], [])
    started.close()


def parent_sentinel() -> int:
    """The pipe that multiprocessing keeps to the parent; it reaches its end when the parent
    ends."""
    parent = parent_process()
    assert parent is not None
    return parent.sentinel


def die_with_parent() -> None:
    """Make the kernel kill this process group when the sampler's process ends, however it ends.

    The end of the parent is an event on the pipe that multiprocessing keeps to it, and the kernel
    can send a signal for such an event. The signal is SIGKILL, which also ends a process that is
    stopped or stuck in an environment's code, and the processes that environments have started.
    """
    sentinel = parent_sentinel()
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(sentinel, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([sentinel], [], [], 0)[0]:
        os._exit(1)  # the parent ended before the signal was armed
