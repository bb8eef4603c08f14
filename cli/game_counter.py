"""How far an evaluation has come, said while it plays."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from sampler.evaluation import EvaluationProgress

INTERVAL = 10.0  # seconds between two lines where there is no terminal
REWRITE = "\r\x1b[K"  # to the beginning of the line, and clear it


class GameCounter:
    """Counts finished games: in one line that changes on a terminal, else by a line now and then.

    As a context manager it removes the terminal's line at the end.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._shown = time.monotonic()

    def __call__(self, progress: EvaluationProgress) -> None:
        """Show how many games are over."""
        line = f"{progress.games:,}/{progress.episodes:,} games, {progress.steps:,} steps"
        if self._live:
            self._write(REWRITE + line)
        elif time.monotonic() - self._shown >= INTERVAL:
            self._shown = time.monotonic()
            self._write(f"{line}\n")

    def close(self) -> None:
        """Clear the terminal's line."""
        if self._live:
            self._write(REWRITE)

    def __enter__(self) -> GameCounter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
