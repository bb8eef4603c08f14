"""Q-networks: DQN and dueling, feed-forward and recurrent."""

from __future__ import annotations

import gymnasium as gym
from gymnasium import spaces
from torch import Tensor, nn

from sampler.errors import ConfigError
from sampler.models.config import ModelConfig
from sampler.models.heads import DuelingHead, QHead
from sampler.models.model import Model, Outputs


class QNetwork(Model):
    """Outputs "q_values" [n, A]: one per action of a Discrete space, counted from 0.

    With a core it is R2D2's network (Kapturowski et al. 2019): the core is fed with the features,
    the previous action as a one-hot vector and the previous reward. Raises ConfigError for action
    spaces other than Discrete.
    """

    def __init__(
        self, observation_space: gym.Space, action_space: gym.Space, config: ModelConfig
    ) -> None:
        if not isinstance(action_space, spaces.Discrete):
            raise ConfigError(
                f"Q-networks need Discrete actions, not {action_space}; use a policy algorithm"
            )
        super().__init__(observation_space, action_space, config, q_network=True)
        actions = int(action_space.n)
        self.q: nn.Module
        if self.config.dueling:
            assert self.config.head_size is not None
            self.q = DuelingHead(self.body.size, actions, self.config.head_size)
        else:
            self.q = QHead(self.body.size, actions)

    def heads(self, features: Tensor, value_features: Tensor) -> Outputs:
        return {"q_values": self.q(features)}
