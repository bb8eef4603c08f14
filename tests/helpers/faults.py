"""Environments that do one thing wrong."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
GOOD = np.array([0.5, -0.5], np.float32)


class Faulty(gym.Env):
    """Well-behaved, but for what is given; episodes of 6 steps.

    Each argument is a function of the number of steps made in the present episode.
    """

    def __init__(
        self,
        observe: Callable[[int], Any] = lambda t: GOOD,
        reward: Callable[[int], Any] = lambda t: 1.0,
        terminated: Callable[[int], Any] = lambda t: t == 6,
        info: Callable[[int], Any] = lambda t: {},
        step: Callable[[tuple], Any] = lambda result: result,
        reset: Callable[[tuple], Any] = lambda result: result,
        close: Callable[[], None] = lambda: None,
        space: gym.Space = BOX,
        action_space: gym.Space | None = None,
    ):
        self.observation_space = space
        self.action_space = spaces.Discrete(3) if action_space is None else action_space
        self.observe, self.reward, self.terminated, self.info = observe, reward, terminated, info
        self.change_step, self.change_reset, self.at_close = step, reset, close
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.change_reset((self.observe(0), self.info(0)))

    def step(self, action):
        self.t += 1
        t = self.t
        return self.change_step(
            (self.observe(t), self.reward(t), self.terminated(t), False, self.info(t))
        )

    def close(self):
        self.at_close()


class LeavesChild(Faulty):
    """Starts a process that it never ends, and notes its id in a folder."""

    def __init__(self, folder: str):
        super().__init__()
        child = subprocess.Popen(["sleep", "1000"])
        (Path(folder) / str(child.pid)).touch()


def in_worker() -> bool:
    """Whether this is a rollout worker, not the process that only looks at the environment."""
    return "rollout worker" in multiprocessing.current_process().name


def later(action: Callable[[], Any]) -> Callable[[int], float]:
    """A reward that does `action` at the fourth step."""

    def reward(t):
        if t == 4:
            action()
        return 1.0

    return reward


def fail(message: str = "the engine is gone") -> Any:
    raise ValueError(message)


def leave_quietly() -> None:
    os._exit(3)


def leave() -> None:
    sys.exit(4)


def interrupt() -> None:
    raise KeyboardInterrupt


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    time.sleep(3600)
