"""A clock for deadlines of other processes."""

from __future__ import annotations

import time


class Patience:
    """Seconds that have passed in looks at it, each counted as `interval` seconds at most.

    So a process that looks often enough does not blame others for the time in which it was stopped
    itself, together with them: by Ctrl-Z, in a frozen container, on a suspended machine.
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
