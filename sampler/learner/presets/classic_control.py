"""Settings for tasks with a few numbers as observations and with discrete actions.

They were tuned on CartPole-v1 (R2D2's on fastrl/CartPoleNoVelocity-v0 and fastrl/RepeatPrevious-v0,
too), and are places to start from.
"""

from __future__ import annotations

from sampler.learner.presets.settings import ADAM, UNIFORM_REPLAY, Settings

SETTINGS = {
    "appo": Settings(
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
    ),
    "ppo": Settings(
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
    ),
    "impala": Settings(
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
    ),
    "a2c": Settings(
        {"workers": 2, "envs_per_worker": 8, "rollout": 16},
        {
            "learning_rate": 3e-3,
            "optimiser": "adam",
            "normalize_rewards": True,
        },
    ),
    "r2d2": Settings(
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
    "apex": Settings(
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
    ),
    "dqn": Settings(
        {"workers": 1, "envs_per_worker": 1, "rollout": 64, "batch": 1},
        {
            **UNIFORM_REPLAY,
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
}
"""By algorithm."""
