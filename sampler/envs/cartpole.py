"""CartPole-v1 without velocities: the smallest control task that needs memory."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

VISIBLE = [0, 2]  # of CartPole's cart position, cart velocity, pole angle, pole velocity


class CartPoleNoVelocity(CartPoleEnv):
    """Observation float32 [2]: cart position and pole angle. Truncated after `max_steps` steps."""

    def __init__(self, max_steps: int = 500, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        space = self.observation_space
        assert isinstance(space, gym.spaces.Box)
        self.observation_space = gym.spaces.Box(
            space.low[VISIBLE], space.high[VISIBLE], dtype=np.float32
        )
        self._max_steps = max_steps
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        self._step = 0
        return observation[VISIBLE], info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, _, info = super().step(action)
        self._step += 1
        truncated = self._step >= self._max_steps
        return observation[VISIBLE], reward, terminated, truncated, info
