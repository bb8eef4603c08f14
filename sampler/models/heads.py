"""Heads: from features to distribution parameters, values and Q-values, always in float32."""

from __future__ import annotations

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sampler.models.config import ModelConfig
from sampler.models.distributions.factory import leaf_distribution
from sampler.models.layers import orthogonal
from sampler.spaces import leaves

POLICY_GAIN = 0.01  # a nearly uniform first policy


class PolicyHead(nn.Module):
    """features [..., F] -> parameters [..., P] of the action distribution."""

    def __init__(self, features: int, action_space: gym.Space, config: ModelConfig) -> None:
        super().__init__()
        self.parts = nn.ModuleList()
        for leaf in leaves(action_space, "actions"):
            size = leaf_distribution(leaf, config.bounded_actions).num_parameters
            if isinstance(leaf.space, spaces.Box):
                self.parts.append(GaussianHead(features, size // 2, config))
            else:
                self.parts.append(orthogonal(nn.Linear(features, size), POLICY_GAIN))

    def forward(self, features: Tensor) -> Tensor:
        if len(self.parts) == 1:
            return self.parts[0](features)
        return torch.cat([part(features) for part in self.parts], dim=-1)


class GaussianHead(nn.Module):
    """features [..., F] -> [..., 2D]: means, then logarithms of the standard deviations."""

    def __init__(self, features: int, size: int, config: ModelConfig) -> None:
        super().__init__()
        outputs = 2 * size if config.state_dependent_std else size
        self.linear = orthogonal(nn.Linear(features, outputs), POLICY_GAIN)
        self.log_std: nn.Parameter | None = None
        if config.state_dependent_std:
            nn.init.constant_(self.linear.bias[size:], config.initial_log_std)
        else:
            self.log_std = nn.Parameter(torch.full((size,), float(config.initial_log_std)))

    def forward(self, features: Tensor) -> Tensor:
        outputs = self.linear(features)
        if self.log_std is None:
            return outputs
        return torch.cat((outputs, self.log_std.expand_as(outputs)), dim=-1)


class ValueHead(nn.Module):
    """features [..., F] -> values [...]."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(features, 1), 1.0)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features).squeeze(-1)


class QHead(nn.Module):
    """features [..., F] -> Q-values [..., A] by one linear layer."""

    def __init__(self, features: int, actions: int) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(features, actions), 1.0)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features)


class DuelingHead(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_b A(s, b), each from a hidden layer (Wang et al. 2016)."""

    def __init__(self, features: int, actions: int, hidden: int) -> None:
        super().__init__()
        self.value = dueling_stream(features, hidden, 1)
        self.advantage = dueling_stream(features, hidden, actions)

    def forward(self, features: Tensor) -> Tensor:
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(-1, keepdim=True)


def dueling_stream(features: int, hidden: int, outputs: int) -> nn.Sequential:
    """One hidden layer and the output layer."""
    return nn.Sequential(
        orthogonal(nn.Linear(features, hidden)),
        nn.ReLU(inplace=True),
        orthogonal(nn.Linear(hidden, outputs), 1.0),
    )
