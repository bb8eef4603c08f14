"""An environment that does nothing, so that sampling it shows the sampler's own cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from sampler.envs.frames import FrameEnv


class NullEnv(FrameEnv):
    """Black 84x84 frames, reward 0, truncated after `length` steps (default 1000).

    `step_into` leaves `out` as it is, because writing a frame would take time.
    """

    def __init__(self, length: int = 1000) -> None:
        super().__init__(actions=4)
        self._length = length
        self._step = 0

    def reset_into(self, out: np.ndarray, seed: int | None = None) -> dict[str, Any]:
        self._seed(seed)
        self._step = 0
        return {}

    def step_into(self, action: Any, out: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        self._step += 1
        return 0.0, False, self._step >= self._length, {}
