"""Settings of R2D2, Ape-X DQN and DQN that differ from their defaults, for `presets`.

Those for images are the published ones, with a replay of 100,000 steps that small machines can
hold (2.1 GiB for R2D2, whose rows overlap; 0.7 GiB for the others). The others were tuned on
CartPole-v1, fastrl/CartPoleNoVelocity-v0, fastrl/RepeatPrevious-v0 and fastrl/BitFlip-v0.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from sampler.learner.algorithms.apex import ApeX, ApeXConfig
from sampler.learner.algorithms.q_learner import QLearner, QLearnerConfig
from sampler.learner.algorithms.r2d2 import R2D2, R2D2Config

OFF_POLICY: dict[str, tuple[type[QLearner], type[QLearnerConfig]]] = {
    "r2d2": (R2D2, R2D2Config),
    "apex": (ApeX, ApeXConfig),
    "dqn": (ApeX, ApeXConfig),
}
"""Learner and settings by name, as in --algo; DQN is Ape-X with other settings."""

Settings = dict[str, Any]

UNIFORM: Settings = {"n_step": 1, "alpha": 0.0, "exploration": "anneal"}
ADAM: Settings = {"optimiser": "adam", "epsilon": 1e-8, "max_grad_norm": 10.0}

CHOICES: dict[tuple[str, str], tuple[Settings, Settings, Settings]] = {
    # of the sampler, the learner and the model
    ("images", "r2d2"): (
        {"workers": 4, "envs_per_worker": 16, "batch": 32},
        {"learning_starts": 20_000},
        {"core": "lstm"},
    ),
    ("images", "apex"): (
        {"workers": 4, "envs_per_worker": 16, "rollout": 50, "batch": 32},
        {"reward_clip": 1.0, "learning_starts": 20_000},
        {},
    ),
    # Mnih et al. 2015: an update of 32 for every 4 steps, a target copied every 10,000 steps
    ("images", "dqn"): (
        {"workers": 1, "envs_per_worker": 1, "rollout": 32, "batch": 1},
        {
            **UNIFORM,
            **ADAM,
            "learning_rate": 1e-4,
            "batch_size": 32,
            "replay_ratio": 8.0,
            "target_every": 2500,
            "huber": 1.0,
            "reward_clip": 1.0,
            "learning_starts": 20_000,
            "exploration_steps": 250_000,
            "exploration_end": 0.01,
        },
        {"dueling": False},
    ),
    ("classic control", "r2d2"): (
        {"workers": 1, "envs_per_worker": 16, "batch": 16},
        {
            "learning_rate": 2e-3,
            "epsilon": 1e-6,
            "gamma": 0.99,
            "n_step": 2,
            "normalize_rewards": True,
            "value_rescaling": False,
            "burn_in": 8,
            "sequence": 40,
            "shift": 40,
            "batch_size": 32,
            "target_every": 50,
            "replay_ratio": 32.0,
            "learning_starts": 3_000,
        },
        {"core": "lstm", "core_size": 64, "hidden": (64,), "head_size": 64},
    ),
    ("classic control", "apex"): (
        {"workers": 1, "envs_per_worker": 8, "rollout": 32, "batch": 8},
        {
            **ADAM,
            "learning_rate": 1e-3,
            "anneal_learning_rate": True,
            "batch_size": 128,
            "target_every": 100,
            "huber": 1.0,
            "normalize_rewards": True,
            "replay_ratio": 32.0,
            "replay_capacity": 50_000,
        },
        {},
    ),
    ("classic control", "dqn"): (
        {"workers": 1, "envs_per_worker": 1, "rollout": 64, "batch": 1},
        {
            **UNIFORM,
            **ADAM,
            "learning_rate": 2e-3,
            "anneal_learning_rate": True,
            "batch_size": 128,
            "target_every": 50,
            "huber": 1.0,
            "normalize_rewards": True,
            "replay_ratio": 64.0,
            "replay_capacity": 50_000,
            "exploration_steps": 8_000,
            "exploration_end": 0.04,
        },
        {"dueling": False},
    ),
    ("goals", "dqn"): (
        {"workers": 1, "envs_per_worker": 1, "rollout": 44, "batch": 1},
        {
            **UNIFORM,
            **ADAM,
            "learning_rate": 1e-3,
            "gamma": 0.98,
            "batch_size": 128,
            "target_every": 100,
            "replay_ratio": 64.0,
            "replay_capacity": 50_000,
            "learning_starts": 200,
            "exploration_steps": 1_500,
            "exploration_end": 0.02,
            "hindsight": "future",
        },
        {"dueling": False},
    ),
}


def off_policy_choice(
    algorithm: str, family: str, observation_space: gym.Space
) -> tuple[Settings, Settings, Settings]:
    """Settings of sampler, learner and model for a family of tasks.

    Where there are goals, DQN replaces them in hindsight. Actions that are not Discrete have the
    settings of those that are, for the learner to refuse them.
    """
    goals = (
        isinstance(observation_space, gym.spaces.Dict)
        and "desired_goal" in observation_space.spaces
    )
    if goals and ("goals", algorithm) in CHOICES:
        family = "goals"
    if family == "continuous control":
        family = "classic control"
    sampler, learner, model = CHOICES[family, algorithm]
    config = OFF_POLICY[algorithm][1](**learner)
    return {**sampler, **config.rows(sampler.get("rollout", 0), 0)}, learner, model
