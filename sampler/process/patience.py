"""A clock for the deadlines of other processes."""

from __future__ import annotations

import time


class Patience:
    """Seconds between readings of the clock, where each pause counts as `interval` seconds at most.

    A process that reads it regularly thus does not blame others for time in which it was stopped
    together with them: by Ctrl-Z, in a frozen container, on a suspended machine.
    """

    def __init__(self, interval: float):
        self.interval = interval
        self.seconds = 0.0
        self._looked = time.monotonic()

    def look(self) -> float:
        """`seconds` until now."""
        now = time.monotonic()
        self.seconds += min(now - self._looked, self.interval)
        self._looked = now
        return self.seconds
