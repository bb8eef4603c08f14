"""Settings for environments with goals, which are replaced in hindsight.

They were tuned on fastrl/BitFlip-v0.
"""

from __future__ import annotations

from sampler.learner.presets.settings import ADAM, UNIFORM_REPLAY, Settings

SETTINGS = {
    "dqn": Settings(
        {"workers": 1, "envs_per_worker": 1, "rollout": 44, "batch": 1},
        {
            **UNIFORM_REPLAY,
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
"""By algorithm; others have the settings of their family."""
