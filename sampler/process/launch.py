"""Starting worker processes, and ending them with everything that they have started."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import types
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.machinery import PathFinder
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from sampler.errors import ConfigError, FastrlError, WorkerError
from sampler.process import CALLER
from sampler.process.bell import Bell
from sampler.process.resources import thread_environment

LOCATION = Path(__file__).resolve().parents[2]

_started: weakref.WeakSet[BaseProcess] = weakref.WeakSet()
_lock = threading.Lock()  # environment variables and sys.modules are shared by all threads
DYING_TIMEOUT = 2.0  # seconds from the end of a fork server's descriptors to that of its process


def context(method: str, preload: Sequence[str] = ()) -> Any:
    """The multiprocessing context for a start method.

    `preload`: modules that a fork server loads once for all its processes.
    """
    chosen = multiprocessing.get_context(method)
    if method == "forkserver":
        # The first module makes our packages found before others in the current folder.
        chosen.set_forkserver_preload(["fastrl", "sampler.process.fork_server", *preload])
    return chosen


def start(process: BaseProcess) -> None:
    """Start a worker process, with single-threaded libraries, and without running the caller's
    script again.

    Raises WorkerError if the system refuses, ConfigError if TMPDIR cannot hold a socket.
    """
    deadline = time.monotonic() + DYING_TIMEOUT
    while True:
        try:
            with (
                _lock,
                thread_environment(1),
                _found_first(),
                _without_main(),
                _caller_known(),
                _uninterrupted(),
            ):
                return _start_and_tell(process)
        except (ConnectionError, EOFError) as error:
            # The fork server is about to end; once it has, another one is started.
            if time.monotonic() > deadline:
                raise _refusal(process, error) from error
            time.sleep(0.01)
        except OSError as error:
            raise _refusal(process, error) from error


def _start_and_tell(process: BaseProcess) -> None:
    """Start a process, and tell it when the start is complete: see `child.wait_until_started`."""
    _forget_in_forks()
    started = Bell()
    process.started = started  # type: ignore[attr-defined]  # it is sent with the process
    try:
        process.start()
        _started.add(process)
        started.ring()
    finally:
        started.close()


@cache
def _forget_in_forks() -> None:
    """Make a fork of the caller forget its workers: it is not their parent, and must not end them
    when it exits."""
    os.register_at_fork(
        after_in_child=lambda: multiprocessing.process._children.difference_update(_started)  # type: ignore[attr-defined]
    )


def _refusal(process: BaseProcess, error: OSError | EOFError) -> FastrlError:
    if "AF_UNIX" in str(error):
        return ConfigError(
            f"the path of a socket in {tempfile.gettempdir()} is too long; set TMPDIR to a folder "
            "with a shorter name, or use start_method=spawn"
        )
    reason = error.strerror if isinstance(error, OSError) else "the fork server ended"
    return WorkerError(
        f"{process.name} could not be started ({reason}); raise the limit of processes, open files "
        "or memory that was reached (ulimit -a), or use fewer workers"
    )


def end(process: BaseProcess, timeout: float) -> None:
    """Kill a process if it still runs, and all processes that it has started and left behind."""
    if process.pid is None:
        return  # it was never started
    end_group(process)  # in one call, since this process may be killed at any moment
    if process.is_alive():
        process.kill()
    process.join(timeout)
    end_group(process)
    if process.exitcode is not None:
        process.close()


def end_group(process: BaseProcess) -> None:
    """Kill a worker's process group: what its environments have started and left behind."""
    assert process.pid is not None
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _caller_known() -> Iterator[None]:
    """Tell a fork server that is started here who its caller is: see
    `sampler.process.fork_server`."""
    os.environ[CALLER] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[CALLER]


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Start children that Ctrl-C does not interrupt before they have their own process group."""
    resource_tracker.ensure_running()  # before the block below, since starting it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _found_first() -> Iterator[None]:
    """Start children that find our packages, even if files beside the script hide them.

    The caller has found them through `fastrl`; children search the path that they are given.
    """
    hidden = any(map(_is_hidden, ("sampler", "cli")))
    if hidden:
        sys.path.insert(0, str(LOCATION))
    try:
        yield
    finally:
        if hidden:
            sys.path.remove(str(LOCATION))


def _is_hidden(name: str) -> bool:
    """Whether this process has loaded a package of ours for which the path leads to another one."""
    here = LOCATION / name / "__init__.py"
    if Path(getattr(sys.modules.get(name), "__file__", None) or "").resolve() != here:
        return False
    spec = PathFinder.find_spec(name)
    return spec is not None and Path(spec.origin or "").resolve() != here


@contextmanager
def _without_main() -> Iterator[None]:
    """Start children that do not run the caller's script again.

    Everything that a child needs from the script is sent with cloudpickle, so a script needs no
    `if __name__ == "__main__"` guard, and works in notebooks.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
