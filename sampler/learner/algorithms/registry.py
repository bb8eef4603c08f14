"""The learning algorithms by name: the learner, its settings, and what makes its model.

Names are ours, `module:Learner`, or entry points of the group `fastrl.algorithms`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from torch import nn

from sampler.errors import ConfigError
from sampler.learner.algorithms.a2c import A2C, A2CConfig
from sampler.learner.algorithms.apex import DQN, ApeX, ApeXConfig
from sampler.learner.algorithms.appo import APPO, APPOConfig
from sampler.learner.algorithms.impala import IMPALA, IMPALAConfig
from sampler.learner.algorithms.ppo import PPO, PPOConfig
from sampler.learner.algorithms.r2d2 import R2D2, R2D2Config
from sampler.learner.base import Learner
from sampler.learner.config import LearnerConfig
from sampler.models import ModelConfig, make_model, make_q_model
from sampler.models.factories import ModelMaker
from sampler.plugins import check_defaults, load_plugin, settings_of

GROUP = "fastrl.algorithms"
"""Entry points of installed packages that add algorithms."""


@dataclass(frozen=True)
class Algorithm:
    """The parts of one algorithm."""

    learner: type[Learner]
    config: type[LearnerConfig]
    model: ModelMaker
    """Makes the default model."""


ACTOR_CRITIC = ModelMaker(make_model, ModelConfig)
Q_NETWORK = ModelMaker(make_q_model, ModelConfig)
ALGORITHMS = {
    "appo": Algorithm(APPO, APPOConfig, ACTOR_CRITIC),
    "ppo": Algorithm(PPO, PPOConfig, ACTOR_CRITIC),
    "impala": Algorithm(IMPALA, IMPALAConfig, ACTOR_CRITIC),
    "a2c": Algorithm(A2C, A2CConfig, ACTOR_CRITIC),
    "r2d2": Algorithm(R2D2, R2D2Config, Q_NETWORK),
    "apex": Algorithm(ApeX, ApeXConfig, Q_NETWORK),
    "dqn": Algorithm(DQN, ApeXConfig, Q_NETWORK),
}
"""By name, as in --algo."""


def find_algorithm(name: str) -> Algorithm:
    """The algorithm that `--algo` names. Raises ConfigError for an unknown or unsuitable one."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    return algorithm_of(load_plugin(name, GROUP, "algo", ALGORITHMS), f"algo={name!r}")


def algorithm_of(learner: Any, what: str) -> Algorithm:
    """The parts of a learner's class that a user has written.

    Its settings are the class that its attribute `config` is annotated with, and its model is made
    by its function `make_model`; what it does not say comes from the class that it extends.
    `what` names it in errors.
    """
    if not (isinstance(learner, type) and issubclass(learner, Learner)):
        raise ConfigError(f"{what} is {learner!r}; give a subclass of sampler.learner.base.Learner")
    try:
        config = get_type_hints(learner).get("config", LearnerConfig)
    except NameError as error:
        raise ConfigError(f"{what}: an annotation cannot be resolved ({error})") from error
    if not (isinstance(config, type) and issubclass(config, LearnerConfig)):
        raise ConfigError(
            f"{what}: its config is annotated with {config!r}; use a dataclass that extends "
            "LearnerConfig"
        )
    check_defaults(config, what)
    base = ALGORITHMS.get(base_of(learner))
    model = ACTOR_CRITIC if base is None else base.model
    make: Callable[..., nn.Module] | None = getattr(learner, "make_model", None)
    if make is not None:
        settings = settings_of(make, 2, f"make_model of {what}")
        model = ModelMaker(make) if settings is None else ModelMaker(make, settings)
    return Algorithm(learner, config, model)


def base_of(learner: type[Learner]) -> str:
    """The name of our algorithm that a learner's class extends; an empty one if it extends none."""
    names = {algorithm.learner: name for name, algorithm in ALGORITHMS.items()}
    return next((names[parent] for parent in learner.__mro__ if parent in names), "")
