"""How a measured program tells its progress: JSON lines on a pipe of their own.

Standard library only, since the programs run in environments of their own. The number of the
pipe's descriptor is in the environment variable PERF_REPORT_FD; without it, the lines are printed.
"""

from __future__ import annotations

import json
import os
import sys
import time

INTERVAL = 0.05  # seconds between two lines, at least


class Reporter:
    """Call it with the number of steps so far, as often as you like."""

    def __init__(self) -> None:
        descriptor = os.environ.pop("PERF_REPORT_FD", None)
        self._stream = os.fdopen(int(descriptor), "w") if descriptor else sys.stdout
        self._next = 0.0

    def __call__(self, steps: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + INTERVAL
            self._stream.write(json.dumps({"time": now, "steps": steps}) + "\n")
            self._stream.flush()
