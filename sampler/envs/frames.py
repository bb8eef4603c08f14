"""Environments whose observation is one uint8 frame, written straight into the caller's array.

The sampler stacks frames and counts skipped ones only for a `FrameEnv`. Attributes of the same
names in other environments mean nothing to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np

from sampler.errors import EnvError

FRAME_SHAPE = (84, 84)
CHECKS = (gym.wrappers.OrderEnforcing, gym.wrappers.PassiveEnvChecker)
"""Gymnasium's wrappers that check how an environment is used and change nothing."""


class FrameEnv(gym.Env[np.ndarray, Any], ABC):
    """An environment that emits single frames and leaves stacking them to the sampler.

    Subclasses define `reset_into` and `step_into`, which write the frame into `out`, a C-contiguous
    uint8 array [height, width]; `reset` and `step` wrap them with a new array.

    Wrappers around a `FrameEnv` are honoured: it is then stepped through them, and their
    observations are stacked if they are still single uint8 frames; any other observation is used as
    it is.
    """

    frame_stack: int = 4
    """Frames the sampler stacks for the model."""
    frame_skip: int = 1
    """Emulator frames per step."""
    slow: str | None = None
    """Why this installation steps it slower than it could, and the remedy."""

    def __init__(self, actions: int, shape: tuple[int, int] = FRAME_SHAPE) -> None:
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gym.spaces.Discrete(actions)
        self._action_count = actions
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
        if not 0 <= action < self._action_count:
            raise EnvError(
                f"action={action!r} is not one of 0 to {self._action_count - 1}; "
                "give one of the action space"
            )
        frame = np.zeros(self._shape, np.uint8)
        reward, terminated, truncated, info = self.step_into(action, frame)
        return frame, reward, terminated, truncated, info

    def _seed(self, seed: int | None) -> None:
        """Restart `np_random` where a seed is given, as `gymnasium.Env.reset` does."""
        super().reset(seed=seed)


def frame_stack(env: Any) -> int:
    """How many of this environment's frames the sampler stacks; 1: it stacks none."""
    inner = _frame_env(env)
    if inner is None:
        return 1
    space = env.observation_space
    is_frame = isinstance(space, gym.spaces.Box) and space.dtype == np.uint8
    return inner.frame_stack if is_frame and len(space.shape) == 2 else 1


def slow(env: Any) -> str | None:
    """Why the `FrameEnv` in `env` is slower than it could be; None where there is no reason."""
    inner = _frame_env(env)
    return None if inner is None else inner.slow


def frame_skip(env: Any) -> int:
    """Emulator frames that a step of this environment takes."""
    inner = _frame_env(env)
    return 1 if inner is None else inner.frame_skip


def direct_frame_env(env: Any) -> FrameEnv | None:
    """The `FrameEnv` whose `step_into` does all that `env.step` does; None if there is none.

    Only the wrappers in `CHECKS` are skipped: every other wrapper may change something.
    """
    while type(env) in CHECKS:
        env = env.env
    if not isinstance(env, FrameEnv):
        return None
    own = type(env)
    return env if own.step is FrameEnv.step and own.reset is FrameEnv.reset else None


def _frame_env(env: Any) -> FrameEnv | None:
    """The `FrameEnv` that `env` is, or that it wraps."""
    inner = env.unwrapped if isinstance(env, gym.Env) else None
    return inner if isinstance(inner, FrameEnv) else None
