"""Progress of a run: a live table on a terminal, one plain line every 10 s anywhere else."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.table import Table

logger = logging.getLogger("fastrl.cli")  # what it records has been printed already


@dataclass(frozen=True)
class Status:
    """What a display shows. None stands for what is not known yet."""

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


class PlainDisplay:
    """Lines without escape codes, for files and pipes."""

    interval = 10.0  # seconds between two updates

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def update(self, status: Status) -> None:
        """Show where the run is."""
        self.message(status_line(status))

    def message(self, text: str) -> None:
        """Print a line, and log it."""
        print(text, file=self._stream, flush=True)
        logger.info(text)

    def warning(self, text: str) -> None:
        """Print a line that must not be missed. Logging it is the caller's affair."""
        print(f"warning: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the stream as it was."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LiveDisplay(PlainDisplay):
    """A table that is redrawn in place; lines appear above it."""

    interval = 0.5  # seconds between two redraws

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(stream)
        self._console = Console(file=stream, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stderr=False)
        self._logged = -PlainDisplay.interval

    def update(self, status: Status) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(status_table(status), refresh=True)
        if status.seconds - self._logged >= PlainDisplay.interval:
            self._logged = status.seconds
            logger.info(status_line(status))

    def message(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
        logger.info(text)

    def warning(self, text: str) -> None:
        self._console.print(f"warning: {text}", markup=False, soft_wrap=True)

    def close(self) -> None:
        if self._live.is_started:
            self._live.stop()


def make_display(stream: TextIO | None = None) -> PlainDisplay:
    """The display that suits `stream` (standard output): live only where it is a terminal."""
    stream = sys.stdout if stream is None else stream
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveDisplay(stream)
    return PlainDisplay(stream)


class DisplayHandler(logging.Handler):
    """Shows the library's log records of level WARNING and above on a display.

    Nothing is shown once `quiet` says so: after a signal, whatever goes wrong no longer matters.
    """

    def __init__(self, display: PlainDisplay, quiet: Callable[[], bool] = lambda: False) -> None:
        super().__init__(logging.WARNING)
        self._display = display
        self._quiet = quiet

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != logger.name and not self._quiet():
            self._display.warning(" ".join(record.getMessage().split()))


def status_line(status: Status) -> str:
    """`status` as one line."""
    parts = [
        f"step {_progress(status)}",
        f"left {duration(status.seconds_left)}",
        f"FPS {status.fps:,.0f}",
        f"SPS {status.sps:,.0f}",
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
        ("FPS", f"{status.fps:,.0f}"),
        ("SPS", f"{status.sps:,.0f}"),
        ("mean return", f"{_number(status.mean_return)}  (last 100 whole games)"),
        ("mean length", f"{_number(status.mean_length)} steps"),
        ("games", f"{status.games:,}"),
        ("lag", _lag(status)),
        ("bottleneck", status.bottleneck),
        ("evaluation", _number(status.evaluated)),
    ]
    for name, value in rows:
        table.add_row(name, value)
    return table


def duration(seconds: float | None) -> str:
    """`seconds` for people: 42s, 3m05s, 2h07m; a dash where it is not known."""
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


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _lag(status: Status) -> str:
    if status.lag_mean is None:
        return "-"
    largest = "" if status.lag_max is None else f" (max {status.lag_max:.0f})"
    return f"{status.lag_mean:.1f}{largest}"
