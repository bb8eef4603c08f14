"""Settings chosen for an environment: images (Atari), continuous control, or classic control.

Those for images are the published ones. The others were tuned on CartPole-v1 and Pendulum-v1, and
are places to start from for tasks with a few numbers as observations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import gymnasium as gym
from torch import nn

from sampler.errors import ConfigError
from sampler.learner.algorithms.a2c import A2C, A2CConfig
from sampler.learner.algorithms.appo import APPO, APPOConfig
from sampler.learner.algorithms.impala import IMPALA, IMPALAConfig
from sampler.learner.algorithms.ppo import PPO, PPOConfig
from sampler.learner.base import Learner, LearnerConfig
from sampler.learner.presets.off_policy import OFF_POLICY, off_policy_choice
from sampler.models import ModelConfig, make_model, make_q_model
from sampler.models.images import is_image
from sampler.spaces import leaves

Family = Literal["images", "continuous control", "classic control"]


class Algorithm(NamedTuple):
    """A learner, its settings, and what makes its model from two spaces and a ModelConfig."""

    learner: type[Learner]
    config: type[LearnerConfig]
    make_model: Callable[..., nn.Module] = make_model


ALGORITHMS = {
    "appo": Algorithm(APPO, APPOConfig),
    "ppo": Algorithm(PPO, PPOConfig),
    "impala": Algorithm(IMPALA, IMPALAConfig),
    "a2c": Algorithm(A2C, A2CConfig),
    **{name: Algorithm(*parts, make_q_model) for name, parts in OFF_POLICY.items()},
}
"""By name, as in --algo."""


@dataclass(frozen=True)
class Preset:
    """What was chosen for one algorithm and one environment."""

    algorithm: str
    family: Family
    sampler: Mapping[str, Any]
    """Fields of SamplerConfig."""
    learner: LearnerConfig
    model: ModelConfig

    def describe(self) -> str:
        """The choice in words, one line: what differs from the defaults of each component."""
        groups = {
            "sampler": self.sampler,
            "learner": differences(self.learner),
            "model": differences(self.model),
        }
        chosen = [
            f"{name} " + ", ".join(f"{key}={value}" for key, value in group.items())
            for name, group in groups.items()
            if group
        ]
        return f"{self.algorithm} with settings for {self.family}: {'; '.join(chosen)}"


def choose_preset(
    algorithm: str,
    observation_space: gym.Space,
    action_space: gym.Space,
    workers: int | None = None,
    envs_per_worker: int | None = None,
    groups: int | None = None,
) -> Preset:
    """Settings of `algorithm` for an environment with these spaces.

    workers, envs_per_worker, groups: where the caller has decided; the batch is made to fit. Raises
    ConfigError for an unknown algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise ConfigError(f"algo={algorithm!r} is not one of {', '.join(ALGORITHMS)}")
    family = family_of(observation_space, action_space)
    if algorithm in OFF_POLICY:
        choice = Choice(*off_policy_choice(algorithm, family, observation_space))
    else:
        choice = CHOICES[family, algorithm]
    given = {"workers": workers, "envs_per_worker": envs_per_worker, "groups": groups}
    sampler = {
        "groups": 2,
        **choice.sampler,
        **{name: value for name, value in given.items() if value is not None},
    }
    learner, config, _ = ALGORITHMS[algorithm]
    sampler["batch"] = rows_of_batch(sampler, learner.sync)
    settings = dict(choice.learner)
    if learner.sync:
        sampler["sync"] = True
        usual = choice.sampler["workers"] * choice.sampler["envs_per_worker"]
        if hasattr(config, "minibatches"):  # as large as they were tuned, whatever the batch
            minibatches = settings.get("minibatches", config.minibatches)
            settings["minibatches"] = max(round(minibatches * sampler["batch"] / usual), 1)
    return Preset(algorithm, family, sampler, config(**settings), ModelConfig(**choice.model))


def family_of(observation_space: gym.Space, action_space: gym.Space) -> Family:
    """The kind of task that the spaces suggest: by images first, then by the actions."""
    if any(is_image(leaf.space) for leaf in leaves(observation_space, "obs")):
        return "images"
    if any(isinstance(leaf.space, gym.spaces.Box) for leaf in leaves(action_space, "actions")):
        return "continuous control"
    return "classic control"


def rows_of_batch(sampler: Mapping[str, Any], sync: bool) -> int:
    """One row of every lane where all wait for the new weights anyway; otherwise as chosen, or the
    nearest number of rows that the lanes of a group divide."""
    workers, envs, groups = (sampler[n] for n in ("workers", "envs_per_worker", "groups"))
    if sync:
        return workers * envs
    block = max(envs // min(groups, envs), 1)
    return max(round(sampler["batch"] / block), 1) * block


def differences(config: Any) -> dict[str, Any]:
    """The fields of a dataclass instance that are not at their defaults."""
    values = {f.name: (getattr(config, f.name), f.default) for f in fields(config)}
    return {name: value for name, (value, default) in values.items() if value != default}


class Choice(NamedTuple):
    """Settings that differ from the defaults."""

    sampler: dict[str, Any]
    learner: dict[str, Any]
    model: dict[str, Any]


CHOICES: dict[tuple[str, str], Choice] = {
    # 1,024 steps in a batch, as Sample Factory has it
    ("images", "appo"): Choice(
        {"workers": 4, "envs_per_worker": 8, "rollout": 32, "batch": 32},
        {"reward_clip": 1.0},
        {},
    ),
    ("images", "ppo"): Choice(
        {"workers": 2, "envs_per_worker": 4, "rollout": 128}, {"reward_clip": 1.0}, {}
    ),
    ("images", "impala"): Choice(
        {"workers": 4, "envs_per_worker": 8, "rollout": 20, "batch": 32}, {}, {}
    ),
    ("images", "a2c"): Choice(
        {"workers": 2, "envs_per_worker": 8, "rollout": 5}, {"reward_clip": 1.0}, {}
    ),
    ("classic control", "appo"): Choice(
        {"workers": 2, "envs_per_worker": 8, "rollout": 16, "batch": 16},
        {
            "learning_rate": 2e-3,
            "anneal_learning_rate": True,
            "max_grad_norm": 1.0,
            "entropy_coef": 0.01,
            "clip": 0.2,
            "value_clip": 0.0,
            "epochs": 4,
            "normalize_rewards": True,
        },
        {},
    ),
    ("classic control", "ppo"): Choice(
        {"workers": 2, "envs_per_worker": 8, "rollout": 32},
        {
            "learning_rate": 1e-3,
            "lambda_": 0.9,
            "clip": 0.2,
            "value_clip": 0.0,
            "epochs": 10,
            "minibatches": 2,
            "normalize_rewards": True,
        },
        {},
    ),
    ("classic control", "impala"): Choice(
        {"workers": 2, "envs_per_worker": 8, "rollout": 16, "batch": 16},
        {
            "learning_rate": 3e-3,
            "optimiser": "adam",
            "epsilon": 1e-5,
            "max_grad_norm": 0.5,
            "reward_clip": 0.0,
            "normalize_rewards": True,
            "reduction": "mean",
        },
        {},
    ),
    ("classic control", "a2c"): Choice(
        {"workers": 2, "envs_per_worker": 8, "rollout": 16},
        {
            "learning_rate": 3e-3,
            "optimiser": "adam",
            "normalize_rewards": True,
        },
        {},
    ),
}
for _algorithm in ALGORITHMS.keys() - OFF_POLICY.keys():
    _sampler, _learner, _ = CHOICES["classic control", _algorithm]
    CHOICES["continuous control", _algorithm] = Choice(
        _sampler, {**_learner, "entropy_coef": 0.0}, {"normalize_observations": True}
    )
CHOICES["continuous control", "appo"] = Choice(
    {"workers": 2, "envs_per_worker": 8, "rollout": 64, "batch": 16},
    {
        "learning_rate": 1e-3,
        "anneal_learning_rate": True,
        "max_grad_norm": 0.5,
        "entropy_coef": 0.0,
        "clip": 0.2,
        "value_clip": 0.0,
        "epochs": 8,
        "minibatches": 4,
        "normalize_rewards": True,
    },
    {"normalize_observations": True},
)
CHOICES["continuous control", "ppo"] = Choice(
    {"workers": 2, "envs_per_worker": 4, "rollout": 128},
    {
        "learning_rate": 1e-3,
        "anneal_learning_rate": True,
        "entropy_coef": 0.0,
        "clip": 0.2,
        "value_clip": 0.0,
        "epochs": 10,
        "minibatches": 8,
        "normalize_rewards": True,
    },
    {"normalize_observations": True},
)
