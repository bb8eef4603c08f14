"""Progress of a run: a live table on a terminal, one plain line every 10 s anywhere else."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.table import Table

logger = logging.getLogger("fastrl.cli")  # its records have already been printed


@dataclass(frozen=True)
class Status:
    """The values that a display shows; None for those not known yet."""

    steps: int
    """Agent steps of real transitions since the run began, resumed parts included."""
    total_steps: int | None
    seconds: float
    """Seconds of training, resumed parts included."""
    seconds_left: float | None
    """Seconds until the run ends at the present speed."""
    fps: float
    """Emulator frames per second."""
    sps: float
    """Agent steps per second."""
    mean_return: float | None
    """Mean raw score of the last 100 whole games."""
    mean_length: float | None
    """Mean length of the last 100 whole games, in agent steps."""
    games: int
    """Whole games finished."""
    lag_mean: float | None
    """Policy versions between acting and learning."""
    lag_max: float | None
    bottleneck: str
    """environment, inference, learner or unknown."""
    evaluated: float | None
    """Mean score of the last evaluation."""
    filling: tuple[int, int] | None = None
    """Steps in the replay, and those with which learning starts; None: it has started."""


class PlainDisplay:
    """Lines without escape codes, for files and pipes."""

    interval = 10.0  # seconds between two updates

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def update(self, status: Status) -> None:
        """Show the progress of the run."""
        self.message(status_line(status))

    def phase(self, text: str) -> None:
        """Show what is being done before there is anything to measure."""
        self.message(text)

    def message(self, text: str) -> None:
        """Print a line, and log it."""
        self.notice(text)
        logger.info(text)

    def warning(self, text: str) -> None:
        """Print a line that must not be missed. The caller logs it."""
        print(f"warning: {text}", file=sys.stderr, flush=True)

    def notice(self, text: str) -> None:
        """Print a line that the caller has logged."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Restore the stream."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LiveDisplay(PlainDisplay):
    """A table that is redrawn in place, twice a second; lines appear above it, then below.

    Any thread may call its methods. Once it is closed, it shows only lines and no table.
    """

    interval = 0.5  # seconds between two redraws

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(stream)
        self._console = Console(file=stream, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stderr=False)
        self._logged = -PlainDisplay.interval
        self._shown: Status | str | None = None
        self._since = 0.0  # time.monotonic() when that was set
        self._lock = threading.RLock()
        self._closed = threading.Event()
        # Batches may be minutes apart; the clock must go on between them.
        threading.Thread(target=self._tick, name="fastrl display", daemon=True).start()

    def update(self, status: Status) -> None:
        self._show(status)
        if status.seconds - self._logged >= PlainDisplay.interval:
            self._logged = status.seconds
            logger.info(status_line(status))

    def phase(self, text: str) -> None:
        self._show(text)
        logger.info(text)

    def message(self, text: str) -> None:
        self._print(text)
        logger.info(text)

    def warning(self, text: str) -> None:
        self._print(f"warning: {text}")

    def notice(self, text: str) -> None:
        self._print(text)

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            if self._live.is_started:
                if isinstance(self._shown, str):
                    self._live.update("")  # the run is over
                self._live.stop()

    def _print(self, text: str) -> None:
        with self._lock:
            lines = textwrap.wrap(
                text, self._console.width, break_long_words=False, break_on_hyphens=False
            )
            self._console.print("\n".join(lines), markup=False, soft_wrap=True)

    def _show(self, shown: Status | str) -> None:
        with self._lock:
            self._shown, self._since = shown, time.monotonic()
            self._draw()

    def _tick(self) -> None:
        while not self._closed.wait(self.interval):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if self._shown is None or self._closed.is_set():
            return
        if not self._live.is_started:
            self._live.start()
        passed = time.monotonic() - self._since
        if isinstance(self._shown, str):
            self._live.update(f"{self._shown} {duration(passed)}", refresh=True)
        else:
            self._live.update(status_table(later(self._shown, passed)), refresh=True)


def make_display(stream: TextIO | None = None) -> PlainDisplay:
    """The display that suits `stream` (standard output): live only where it is a terminal."""
    stream = sys.stdout if stream is None else stream
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveDisplay(stream)
    return PlainDisplay(stream)


class DisplayHandler(logging.Handler):
    """Shows the library's log records on a display: warnings, and who is still starting.

    What has several lines below a warning, such as a traceback, is left to the log file.
    Nothing is shown once `quiet` says so: after a signal, whatever goes wrong no longer matters.
    """

    def __init__(self, display: PlainDisplay, quiet: Callable[[], bool] = lambda: False) -> None:
        super().__init__(logging.INFO)
        self._display = display
        self._quiet = quiet

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == logger.name or self._quiet():
            return
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            self._display.warning(" ".join(text.split()))
        elif "\n" not in text:
            self._display.notice(text)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """A block in which the library's records come here."""
        library = logging.getLogger("fastrl")
        level = library.level
        library.addHandler(self)
        library.setLevel(logging.INFO)
        try:
            yield
        finally:
            library.removeHandler(self)
            library.setLevel(level)


def later(status: Status, seconds: float) -> Status:
    """`status` with its clock advanced by `seconds`."""
    left = status.seconds_left
    return replace(
        status,
        seconds=status.seconds + seconds,
        seconds_left=None if left is None else max(left - seconds, 0.0),
    )


def status_line(status: Status) -> str:
    """`status` as one line."""
    frames = [f"FPS {status.fps:,.0f} frames/s"] if has_frames(status.fps, status.sps) else []
    parts = [
        f"step {_progress(status)}",
        *([_filling(status.filling)] if status.filling else []),
        f"left {duration(status.seconds_left)}",
        *frames,
        f"SPS {status.sps:,.0f} steps/s",
        f"return {_number(status.mean_return)}",
        f"length {_number(status.mean_length)}",
        f"games {status.games:,}",
        f"lag {_lag(status)}",
        f"bottleneck {status.bottleneck}",
    ]
    if status.evaluated is not None:
        parts.append(f"eval {_number(status.evaluated)}")
    return "  ".join(parts)


def status_table(status: Status) -> Table:
    """`status` as a table of two columns."""
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    rows = [
        ("steps", _progress(status)),
        ("time", f"{duration(status.seconds)}, left {duration(status.seconds_left)}"),
        ("FPS", f"{status.fps:,.0f} emulator frames/s"),
        ("SPS", f"{status.sps:,.0f} agent steps/s"),
        ("mean return", f"{_number(status.mean_return)}  (last 100 whole games)"),
        ("mean length", f"{_number(status.mean_length)} steps"),
        ("games", f"{status.games:,}"),
        ("lag", _lag(status)),
        ("bottleneck", status.bottleneck),
        ("evaluation", _number(status.evaluated)),
    ]
    if not has_frames(status.fps, status.sps):
        rows = [row for row in rows if row[0] != "FPS"]
    if status.filling:
        rows.insert(1, ("now", _filling(status.filling)))
    for name, value in rows:
        table.add_row(name, value)
    return table


def has_frames(fps: float, sps: float) -> bool:
    """Whether a step is several emulator frames, so that FPS and SPS differ."""
    return round(fps) != round(sps)


def duration(seconds: float | None) -> str:
    """`seconds` for people: 42s, 3m05s, 2h07m; a dash if it is not known."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _progress(status: Status) -> str:
    if status.total_steps is None:
        return f"{status.steps:,}"
    share = status.steps / max(status.total_steps, 1)
    return f"{status.steps:,}/{status.total_steps:,} ({share:.0%})"


def _filling(filling: tuple[int, int]) -> str:
    return "filling replay {:,}/{:,}".format(*filling)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _lag(status: Status) -> str:
    if status.lag_mean is None:
        return "-"
    largest = "" if status.lag_max is None else f" (max {status.lag_max:.0f})"
    return f"{status.lag_mean:.1f} versions{largest}"
