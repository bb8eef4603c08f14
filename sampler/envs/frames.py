"""Environments whose observation is one uint8 frame, written where the caller wants it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np

FRAME_SHAPE = (84, 84)


class FrameEnv(gym.Env[np.ndarray, Any]):
    """An environment that emits single frames and leaves stacking them to the sampler.

    Subclasses define `reset_into` and `step_into`, which write the frame into `out`, a C-contiguous
    uint8 array [height, width]; `reset` and `step` wrap them with a new array.
    """

    frame_stack: int = 4
    """Frames the sampler stacks for the model."""
    frame_skip: int = 1
    """Emulator frames per step."""

    def __init__(self, actions: int, shape: tuple[int, int] = FRAME_SHAPE) -> None:
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gym.spaces.Discrete(actions)
        self._shape = shape

    @abstractmethod
    def reset_into(self, out: np.ndarray, seed: int | None = None) -> dict[str, Any]:
        """Begin an episode, write its first frame into `out` and return info."""

    @abstractmethod
    def step_into(self, action: Any, out: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        """Step, write the frame into `out`; returns reward, terminated, truncated, info."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        frame = np.zeros(self._shape, np.uint8)
        return frame, self.reset_into(frame, seed)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        frame = np.zeros(self._shape, np.uint8)
        reward, terminated, truncated, info = self.step_into(action, frame)
        return frame, reward, terminated, truncated, info

    def _seed(self, seed: int | None) -> None:
        """Restart `np_random` where a seed is given, as `gymnasium.Env.reset` does."""
        super().reset(seed=seed)
