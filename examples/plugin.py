"""An environment, a model and an algorithm of one's own. In this folder:

fastrl-train --env plugin:Corridor-v0 --algo plugin:Reinforce --model plugin:TwoLayers
"""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from torch import nn

from sampler.learner import targets
from sampler.learner.base import Learner, LearnerConfig
from sampler.learner.functional import evaluate_actions


class Corridor(gym.Env):
    """The reward is at the right end; every step costs a little."""

    observation_space = spaces.Box(0.0, 1.0, (1,))
    action_space = spaces.Discrete(2)
    length = 10

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(self.length))
        return np.array([self.place / self.length], np.float32), {}

    def step(self, action):
        self.place = max(self.place + 2 * int(action) - 1, 0)
        there = self.place == self.length
        return np.array([self.place / self.length], np.float32), there - 0.02, there, False, {}


gym.register("Corridor-v0", Corridor, max_episode_steps=100)


@dataclass(frozen=True)
class TwoLayersConfig:
    width: int = 16
    """Units of the hidden layer."""


class TwoLayers(nn.Module):
    def __init__(self, observation_space, action_space, config: TwoLayersConfig) -> None:
        super().__init__()
        self.hidden = nn.Linear(observation_space.shape[0], config.width)
        self.policy = nn.Linear(config.width, int(action_space.n))
        self.value = nn.Linear(config.width, 1)

    def forward(self, obs):
        return self.policy(x := self.hidden(obs).tanh()), self.value(x)


@dataclass(frozen=True)
class ReinforceConfig(LearnerConfig):
    learning_rate: float = 3e-3
    baseline: bool = True  # compare returns with the predicted values


class Reinforce(Learner):
    config: ReinforceConfig

    def update(self, batch, publish):
        b = batch.to(self.device)
        log_probs, _, values = evaluate_actions(self.model, b)
        v, ends = values.detach(), b.terminated | b.truncated
        discounts = self.config.gamma * ~b.terminated
        returns = targets.lambda_returns(discounts, b.rewards, v[:, 1:], ends, lambda_=1.0)
        advantages = returns - v[:, :-1] * self.config.baseline
        losses = (returns - values[:, :-1]) ** 2 - advantages * log_probs
        loss = (losses * b.mask).sum() / b.mask.sum().clamp(min=1)
        self.step(loss, {"loss": loss})
        self.metrics.add({"losses/loss": loss})
        self.publish(publish)
        self.batches += 1
        return self.metrics.means()
