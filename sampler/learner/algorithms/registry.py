"""The learning algorithms by name: the learner, its settings, and what makes its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from sampler.learner.algorithms.a2c import A2C, A2CConfig
from sampler.learner.algorithms.apex import DQN, ApeX, ApeXConfig
from sampler.learner.algorithms.appo import APPO, APPOConfig
from sampler.learner.algorithms.impala import IMPALA, IMPALAConfig
from sampler.learner.algorithms.ppo import PPO, PPOConfig
from sampler.learner.algorithms.r2d2 import R2D2, R2D2Config
from sampler.learner.base import Learner
from sampler.learner.config import LearnerConfig
from sampler.models import make_model, make_q_model


@dataclass(frozen=True)
class Algorithm:
    """The parts of one algorithm."""

    learner: type[Learner]
    config: type[LearnerConfig]
    make_model: Callable[..., nn.Module]
    """Makes the default model from the spaces of observations and actions and a ModelConfig."""


ALGORITHMS = {
    "appo": Algorithm(APPO, APPOConfig, make_model),
    "ppo": Algorithm(PPO, PPOConfig, make_model),
    "impala": Algorithm(IMPALA, IMPALAConfig, make_model),
    "a2c": Algorithm(A2C, A2CConfig, make_model),
    "r2d2": Algorithm(R2D2, R2D2Config, make_q_model),
    "apex": Algorithm(ApeX, ApeXConfig, make_q_model),
    "dqn": Algorithm(DQN, ApeXConfig, make_q_model),
}
"""By name, as in --algo."""
