"""An environment that sleeps, in place of one that computes on a machine with more cores."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from sampler.envs.null import NullEnv


class SleepEnv(NullEnv):
    """`NullEnv` whose steps take `step_us` microseconds and whose resets take `reset_s` seconds.

    A lane is slow with probability `slow_lanes`, drawn from the seed; its steps take `slow_factor`
    times as long. Both times leave the processor idle.
    """

    def __init__(
        self,
        step_us: float = 400.0,
        reset_s: float = 0.0,
        slow_lanes: float = 0.0,
        slow_factor: float = 10.0,
        length: int = 1000,
    ) -> None:
        super().__init__(length)
        self._usual_s = step_us * 1e-6
        self._step_s = self._usual_s
        self._reset_s = reset_s
        self._slow_lanes = slow_lanes
        self._slow_factor = slow_factor

    def reset_into(self, out: np.ndarray, seed: int | None = None) -> dict[str, Any]:
        info = super().reset_into(out, seed)
        if seed is not None:
            slow = self.np_random.random() < self._slow_lanes
            self._step_s = self._usual_s * (self._slow_factor if slow else 1.0)
        if self._reset_s:
            time.sleep(self._reset_s)
        return info

    def step_into(self, action: Any, out: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        if self._step_s:
            time.sleep(self._step_s)
        return super().step_into(action, out)
