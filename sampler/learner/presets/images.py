"""Settings for images (Atari): the published ones.

The replays of R2D2, Ape-X and DQN hold 100,000 steps, which small machines can hold (2.1 GiB for
R2D2, whose rows overlap; 0.7 GiB for the others).
"""

from __future__ import annotations

from sampler.learner.presets.settings import ADAM, UNIFORM_REPLAY, Settings

SINGLE_LANE = {"exploration_steps": 250_000, "exploration_end": 0.01}
"""How a single lane explores, which no ladder can be made of."""

SETTINGS = {
    # 1,024 steps in a batch, as Sample Factory has it
    "appo": Settings(
        {"workers": 4, "envs_per_worker": 8, "rollout": 32, "batch": 32},
        {"reward_clip": 1.0},
    ),
    "ppo": Settings({"workers": 2, "envs_per_worker": 4, "rollout": 128}, {"reward_clip": 1.0}),
    "impala": Settings(
        {"workers": 4, "envs_per_worker": 8, "rollout": 20, "batch": 32},
    ),
    "a2c": Settings({"workers": 2, "envs_per_worker": 8, "rollout": 5}, {"reward_clip": 1.0}),
    "r2d2": Settings(
        {"workers": 4, "envs_per_worker": 16, "batch": 32},
        {"learning_starts": 20_000, **SINGLE_LANE},
        {"core": "lstm"},
    ),
    "apex": Settings(
        {"workers": 4, "envs_per_worker": 16, "rollout": 50, "batch": 32},
        {"reward_clip": 1.0, "learning_starts": 20_000, **SINGLE_LANE},
    ),
    # Mnih et al. 2015: an update of 32 for every 4 steps, a target copied every 10,000 steps
    "dqn": Settings(
        {"workers": 1, "envs_per_worker": 1, "rollout": 32, "batch": 1},
        {
            **UNIFORM_REPLAY,
            **ADAM,
            "learning_rate": 1e-4,
            "batch_size": 32,
            "replay_ratio": 8.0,
            "target_every": 2500,
            "huber": 1.0,
            "reward_clip": 1.0,
            "learning_starts": 20_000,
            **SINGLE_LANE,
        },
        {"dueling": False},
    ),
}
"""By algorithm."""
