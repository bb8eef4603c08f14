"""Vector environments that reset in each of Gymnasium's ways, and say so or not."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode


class Numbers(gym.Env):
    """Observes (episode, step). Step t of episode n has reward 10 n + t; `length` steps each.

    The game goes on for `lives` episodes, the first for `played` fewer.
    """

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length=4, truncates=False, lives=1, played=0):
        self.length, self.truncates, self.lives = length, truncates, lives
        self.played = played
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        self.episode = self.episode + 1 if seed is None else 0
        self.t = 0
        return self.observe(), {}

    def observe(self):
        return np.array([self.episode, self.t], np.float32)

    def step(self, action):
        self.t += 1
        ended = self.t == self.length
        # Only where a life is lost does it say anything.
        over = (self.episode + 1 + self.played) % self.lives == 0
        info = {"game_over": False} if ended and not over else {}
        terminated, truncated = ended and not self.truncates, ended and self.truncates
        return self.observe(), 10.0 * self.episode + self.t, terminated, truncated, info


class Undeclared(gym.vector.VectorEnv):
    """Lanes of `Numbers` that reset as `mode` says, which is not declared; as an environment does
    whose lanes are arrays: it knows one seed for all, and `final` is its key of final observations.
    """

    def __init__(self, lengths=(4, 4), mode=AutoresetMode.SAME_STEP, final="final_obs", **kwargs):
        self.inner = gym.vector.SyncVectorEnv(
            [lambda n=n: Numbers(n, **kwargs) for n in lengths], autoreset_mode=mode
        )
        self.final = final
        self.num_envs = len(lengths)
        self.single_observation_space = Numbers.observation_space
        self.single_action_space = Numbers.action_space
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space

    def reset(self, *, seed=None, options=None):
        assert seed is None or isinstance(seed, int)
        return self.inner.reset(seed=seed, options=options)

    def step(self, actions):
        *rest, info = self.inner.step(actions)
        for name in ("final_obs", "_final_obs"):
            if name in info:
                value = info.pop(name)
                if self.final is not None:
                    info[name.replace("final_obs", self.final)] = value
        return (*rest, info)
