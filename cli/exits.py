"""How a command ends: one line and an exit code, never a traceback.

0 done, 1 a failure, 2 a configuration that cannot work, 130 SIGINT, 143 SIGTERM. This module loads
nothing that takes time, because a signal before its handlers are in place would end in a traceback.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

GRACE_SECONDS = 4.5
"""From the first signal until the command is no longer waited for. What it has not saved by then is
saved in another thread, however long that takes."""
CLOSING_SECONDS = 1.0
"""From then, with everything saved, to the exit."""
ANNOUNCING_SECONDS = 0.5
"""How long a signal's handler waits until its line is printed."""
URGENT_SECONDS = 2.0
"""From the first signal until unfinished work should be left, to have time for saving."""


class Stopped(BaseException):
    """Work was left unfinished because time runs out after a signal."""


class StopSignals:
    """The effects of SIGINT and SIGTERM, with one line on stderr.

    Outside of `deferred` blocks there is nothing to save, and the process ends at once. In them the
    first signal sets `event`; the command looks at it between two steps, saves and returns. After
    GRACE_SECONDS without an end `rescue` is called, and then the process ends. A second signal ends
    it at once. Whenever the process ends, its children end with it.
    """

    def __init__(self, prog: str) -> None:
        self.signal: int | None = None
        self.event = threading.Event()
        self.note = "saving"
        """What the line says is being done in a deferred block."""
        self.on_exit: Callable[[], None] = lambda: None
        """Restores the terminal; called before the signal's line, and before the process ends."""
        self.rescue: Callable[[], None] = lambda: None
        """Saves, in a thread of its own, what a command that does not end has not saved."""
        self._prog = prog
        self._deferred = 0
        self._since = 0.0
        self._timer = threading.Timer(GRACE_SECONDS, self._end_late)
        self._timer.daemon = True
        self._previous: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, 0 without one."""
        return 0 if self.signal is None else 128 + self.signal

    @property
    def urgent(self) -> bool:
        """Whether a signal arrived URGENT_SECONDS ago, so that the remaining time is for saving."""
        return self.requested and time.monotonic() - self._since > URGENT_SECONDS

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A block in which the first signal only sets `event`."""
        self._deferred += 1
        try:
            yield
        finally:
            self._deferred -= 1

    def __enter__(self) -> StopSignals:
        faulthandler.register(signal.SIGUSR1, file=2)  # shows what every thread is doing
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            self._end()
        self.signal = number
        self._since = time.monotonic()
        self.event.set()
        doing = f"{self.note}; a second signal ends at once" if self._deferred else "stopped"
        line = f"{self._prog}: {signal.Signals(number).name}: {doing}\n"
        # The interrupted code may be in the middle of printing, so another thread waits for that.
        announcement = threading.Thread(target=self._announce, args=(line,), daemon=True)
        announcement.start()
        announcement.join(ANNOUNCING_SECONDS)
        if not self._deferred:
            self._end()
        self._timer.start()

    def _announce(self, line: str) -> None:
        with suppress(Exception):  # a broken terminal must not prevent the line
            self.on_exit()
        os.write(2, _wrapped(line).encode())

    def _end_late(self) -> None:
        """Save what the command has not saved, and end without it."""
        if self._deferred:
            self.rescue()
            time.sleep(CLOSING_SECONDS)
        self._end()

    def _end(self) -> None:
        kill_descendants()
        remove_temporary_folder()
        with suppress(Exception):
            self.on_exit()
            sys.stdout.flush()
        os._exit(self.exit_code)


def _wrapped(line: str) -> str:
    """`line` broken between words, and no path in the middle, where stderr is a terminal."""
    try:
        width = os.get_terminal_size(2).columns
    except OSError:
        return line
    lines = textwrap.wrap(line, width or 80, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def kill_descendants() -> None:
    """Kill all child processes of this process, and theirs in turn.

    They would all end with this process, but those that are just starting would print tracebacks.
    """
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat") as file:
            parent = int(file.read().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    waiting = children.get(os.getpid(), [])
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def remove_temporary_folder() -> None:
    """Remove the folder of multiprocessing's socket, which is otherwise removed only at a normal
    exit."""
    if process := sys.modules.get("multiprocessing.process"):
        folder = process.current_process()._config.get("tempdir")
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def open_standard_streams() -> None:
    """Open /dev/null in place of stdin, stdout and stderr if they are closed.

    Otherwise the next files to be opened would get their numbers, and all printed output.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, number)
            os.set_inheritable(number, True)
            if null != number:
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode))


def run_command(prog: str, command: Callable[[StopSignals], int]) -> int:
    """Run `command` and turn the way it ends into an exit code, with one line on stderr."""
    open_standard_streams()
    with StopSignals(prog) as signals:
        try:
            code = command(signals)
        except BrokenPipeError:
            # the reader of the output is gone; nothing can be printed, not even at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = _fail(prog, "standard output was closed", 1)
        except Exception as error:
            code = _fail(prog, *_explain(error))
    return signals.exit_code or code


def leave(code: int) -> NoReturn:
    """End the process with `code`; after a signal, without the interpreter's own clean-up.

    By then everything is saved and closed, and taking torch apart can take seconds.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process is already ending
    if code > 128:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _fail(prog: str, message: str, code: int) -> int:
    print(f"{prog}: error: {message}", file=sys.stderr, flush=True)
    return code


def _explain(error: Exception) -> tuple[str, int]:
    """An error as a line and an exit code. The line of an unexpected error names its place in the
    code.

    The traceback is in the run's log.txt; FASTRL_TRACEBACK=1 prints it, too.
    """
    from sampler.errors import ConfigError, FastrlError, one_line

    if os.environ.get("FASTRL_TRACEBACK"):
        traceback.print_exception(error)
    if isinstance(error, FastrlError):
        return one_line(error), 2 if isinstance(error, ConfigError) else 1
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}; correct that, or choose another folder", 1
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return one_line(error) + place, 1
