"""An environment with smooth observations. Not beside the models, so that it loads no torch."""

from __future__ import annotations

import gymnasium as gym
import numpy as np


class Wave(gym.Env):
    """Observations wander with lane, step and action; episodes of 1 to `max_length` steps."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (5,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, max_length: int = 9):
        self.max_length = max_length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.phase = self.np_random.uniform(-np.pi, np.pi, 5)
        self.left = int(self.np_random.integers(1, self.max_length + 1))
        self.terminates = bool(self.np_random.integers(2))
        return np.sin(self.phase).astype(np.float32), {}

    def step(self, action):
        self.phase += np.arange(1, 6) * 0.1 * (int(action) + 1)
        self.left -= 1
        done = self.left == 0
        observation = np.sin(self.phase).astype(np.float32)
        reward = float(self.phase.mean())
        return observation, reward, done and self.terminates, done and not self.terminates, {}
