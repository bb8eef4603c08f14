"""BitFlip: flip bits until they equal the goal (Andrychowicz et al., 2017, section 3.1)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class BitFlip(gym.Env[dict[str, Any], Any]):
    """`bits` bits, action i flips bit i; reward -1 for every step that does not reach the goal.

    Observations are a Dict of `observation`, `achieved_goal` and `desired_goal`, each int8 [bits].
    Start and goal are uniform and differ. Reaching the goal (reward 0) terminates; otherwise the
    episode is truncated after `max_steps` steps (default: `bits`).
    """

    def __init__(self, bits: int = 10, max_steps: int | None = None) -> None:
        if bits < 1:
            raise ValueError(f"bits={bits} must be at least 1")
        part = gym.spaces.MultiBinary(bits)
        self.observation_space = gym.spaces.Dict(
            observation=part, achieved_goal=part, desired_goal=part
        )
        self.action_space = gym.spaces.Discrete(bits)
        self._max_steps = bits if max_steps is None else max_steps
        self._bits = np.zeros(bits, np.int8)
        self._goal = np.zeros(bits, np.int8)
        self._step = 0

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> np.ndarray:
        """float32 [...]: 0 where the goals [..., bits] are equal, else -1."""
        return np.float32(self.compute_terminated(achieved_goal, desired_goal, info)) - 1

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> np.ndarray:
        """bool [...]: where the goals [..., bits] are equal."""
        return (np.asarray(achieved_goal) == np.asarray(desired_goal)).all(-1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        self._bits, self._goal = self.np_random.integers(
            2, size=(2, len(self._bits)), dtype=np.int8
        )
        if (self._bits == self._goal).all():
            self._goal[self.np_random.integers(len(self._goal))] ^= 1
        self._step = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        self._bits[action] ^= 1
        self._step += 1
        success = bool((self._bits == self._goal).all())
        truncated = not success and self._step >= self._max_steps
        info = {"is_success": success}
        return self._observation(), float(success) - 1.0, success, truncated, info

    def _observation(self) -> dict[str, np.ndarray]:
        return {
            "observation": self._bits.copy(),
            "achieved_goal": self._bits.copy(),
            "desired_goal": self._goal.copy(),
        }
