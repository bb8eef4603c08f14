"""Actor-critic models for every observation and action space."""

from __future__ import annotations

import gymnasium as gym
from torch import Tensor

from sampler.models.config import ModelConfig
from sampler.models.heads import PolicyHead, ValueHead
from sampler.models.model import Model, Outputs


class ActorCritic(Model):
    """Outputs "logits" [n, P] (parameters of the action distribution) and "values" [n].

    bounded_actions: how its Gaussians keep to a Box's bounds. action_units: "normalized", since
    their means and standard deviations are in units where a bounded dimension spans [-1, 1], so
    that a new network explores alike whatever the bounds. `distribution_for` reads both.
    """

    action_units = "normalized"

    def __init__(
        self, observation_space: gym.Space, action_space: gym.Space, config: ModelConfig
    ) -> None:
        super().__init__(observation_space, action_space, config)
        self.bounded_actions = config.bounded_actions
        self.policy = PolicyHead(self.body.size, action_space, config)
        self.value = ValueHead(self.body.size)

    def heads(self, features: Tensor, value_features: Tensor) -> Outputs:
        return {"logits": self.policy(features), "values": self.value(value_features)}
