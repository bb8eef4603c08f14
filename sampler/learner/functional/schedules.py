"""Settings that change with the number of steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinearSchedule:
    """`start` until step `begin`, then a straight line that reaches `end` after `steps` steps.

    `steps=0` jumps to `end` after `begin`.
    """

    start: float
    end: float
    steps: int
    begin: int = 0

    def __call__(self, step: int) -> float:
        """The value at `step` (any int; held constant outside the line)."""
        if step <= self.begin:
            return self.start
        done = min((step - self.begin) / self.steps, 1.0) if self.steps else 1.0
        return (1 - done) * self.start + done * self.end
