"""The counter environment with one lane that stands still until a file appears."""

from __future__ import annotations

import time
from pathlib import Path

from sampler.envs.counter import CounterEnv


class GatedCounter(CounterEnv):
    """At its step `at_step` the lane with one seed makes the file `reached(gate)`, and waits."""

    def __init__(self, gate: str, slow_seed: int, at_step: int = 3, max_length: int = 12):
        super().__init__(max_length=max_length)
        self.gate, self.slow_seed, self.steps_left = Path(gate), slow_seed, at_step
        self.slow = False

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.slow = seed == self.slow_seed
        return super().reset(seed=seed)

    def step(self, action):
        self.steps_left -= 1
        if self.slow and self.steps_left == 0:
            reached(self.gate).touch()
            while not self.gate.exists():
                time.sleep(0.001)
        return super().step(action)


def reached(gate: Path) -> Path:
    """The file that says that the slow lane stands still."""
    return gate.with_suffix(".reached")
