"""Neural networks: default models, wrappers for custom ones, and action distributions."""

from __future__ import annotations

import gymnasium as gym
from torch import nn

from sampler.models.actor_critic import ActorCritic
from sampler.models.config import ModelConfig
from sampler.models.distributions import distribution_for, make_distribution
from sampler.models.exploration import (
    epsilon_greedy,
    epsilon_greedy_log_prob,
    epsilon_greedy_probs,
    epsilon_ladder,
)
from sampler.models.policy_model import PolicyModel
from sampler.models.protocol import as_policy_model, model_outputs
from sampler.models.q_network import QNetwork
from sampler.models.weights import load_weights, renamed

__all__ = [
    "ActorCritic",
    "ModelConfig",
    "PolicyModel",
    "QNetwork",
    "as_policy_model",
    "distribution_for",
    "epsilon_greedy",
    "epsilon_greedy_log_prob",
    "epsilon_greedy_probs",
    "epsilon_ladder",
    "load_weights",
    "make_distribution",
    "make_model",
    "make_q_model",
    "model_outputs",
    "renamed",
]

DEFAULT = ModelConfig()


def make_model(
    observation_space: gym.Space, action_space: gym.Space, config: ModelConfig = DEFAULT
) -> nn.Module:
    """The default actor-critic model for these spaces, as the model sees them.

    Raises ConfigError for spaces without a fixed size or without a distribution.
    """
    return ActorCritic(observation_space, action_space, config)


def make_q_model(
    observation_space: gym.Space, action_space: gym.Space, config: ModelConfig = DEFAULT
) -> nn.Module:
    """The default Q-network for these spaces; `action_space` must be Discrete (ConfigError)."""
    return QNetwork(observation_space, action_space, config)
