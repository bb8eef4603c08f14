"""Settings for tasks with continuous actions, tuned on Pendulum-v1: places to start from."""

from __future__ import annotations

from dataclasses import replace

from sampler.learner.presets import classic_control
from sampler.learner.presets.settings import Settings


def _continuous(settings: Settings) -> Settings:
    """Settings for discrete actions without the entropy bonus, which would make a Gaussian too
    wide."""
    learner = {**settings.learner, "entropy_coef": 0.0}
    return replace(settings, learner=learner, model={"normalize_observations": True})


SETTINGS = {
    "appo": Settings(
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
    ),
    "ppo": Settings(
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
    ),
    "impala": _continuous(classic_control.SETTINGS["impala"]),
    "a2c": _continuous(classic_control.SETTINGS["a2c"]),
    # Learners of Q-values refuse continuous actions themselves.
    "r2d2": classic_control.SETTINGS["r2d2"],
    "apex": classic_control.SETTINGS["apex"],
    "dqn": classic_control.SETTINGS["dqn"],
}
"""By algorithm."""
