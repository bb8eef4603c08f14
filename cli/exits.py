"""How a command ends: one line and an exit code, never a traceback.

0 done, 1 a failure, 2 a configuration that cannot work, 130 SIGINT, 143 SIGTERM. This module loads
nothing that takes time: until its handlers are in place, a signal would end in a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

GRACE_SECONDS = 4.5
"""From the first signal to the exit, whatever still has to be saved by then."""


class Stopped(BaseException):
    """The first signal arrived at a point where the work can simply be left."""


class StopSignals:
    """Turns SIGINT and SIGTERM into a request to stop.

    The first one prints one line and sets `event`; the command looks at it between two steps,
    saves and returns. Outside of `deferred` blocks it also raises Stopped. A second one ends the
    process at once, as do GRACE_SECONDS without an end; children die with their parent.
    """

    def __init__(self, prog: str, on_exit: Callable[[], None] | None = None) -> None:
        self.signal: int | None = None
        self.note = "stopping"
        """What the line says is happening."""
        self.event = threading.Event()
        self.on_exit = on_exit
        self._prog = prog
        self._deferred = 0
        self._timer = threading.Timer(GRACE_SECONDS, self._end)
        self._timer.daemon = True
        self._previous: dict[int, object] = {}

    @property
    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, 0 without one."""
        return 0 if self.signal is None else 128 + self.signal

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def deferred(self) -> _Deferred:
        """A block in which the first signal only sets `requested`."""
        return _Deferred(self)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self._end()
        self.signal = number
        self.event.set()
        name = signal.Signals(number).name
        # os.write: printing from a handler may meet a print that it interrupted
        line = f"{self._prog}: {name}: {self.note}; a second signal ends at once\n"
        os.write(2, line.encode())
        self._timer.start()
        if not self._deferred:
            raise Stopped

    def _end(self) -> None:
        if self.on_exit is not None:
            self.on_exit()
        os._exit(self.exit_code)


class _Deferred:
    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals

    def __enter__(self) -> None:
        self._signals._deferred += 1

    def __exit__(self, *_: object) -> None:
        self._signals._deferred -= 1


def run_command(prog: str, command: Callable[[StopSignals], int]) -> int:
    """Run `command` and turn the way it ends into an exit code, with one line on stderr."""
    with StopSignals(prog) as signals:
        try:
            code = command(signals)
        except Stopped:
            code = signals.exit_code
        except BrokenPipeError:
            # whoever read the output is gone; nothing can be printed, not even at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = _fail(prog, "standard output was closed", 1)
        except Exception as error:
            code = _fail(prog, *_explain(error))
    return signals.exit_code or code


def leave(code: int) -> NoReturn:
    """End the process with `code`; after a signal, without the interpreter's own clean-up.

    By then everything is saved and closed, and taking torch apart can take seconds.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ending already
    if code > 128:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _fail(prog: str, message: str, code: int) -> int:
    print(f"{prog}: error: {message}", file=sys.stderr, flush=True)
    return code


def _explain(error: Exception) -> tuple[str, int]:
    """An error as a line and an exit code. One that nobody planned for is given its place.

    The traceback is in the run's log.txt; FASTRL_TRACEBACK=1 prints it, too.
    """
    from sampler.errors import ConfigError, FastrlError, one_line

    if os.environ.get("FASTRL_TRACEBACK"):
        traceback.print_exception(error)
    if isinstance(error, FastrlError):
        return one_line(error), 2 if isinstance(error, ConfigError) else 1
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return one_line(error) + place, 1
