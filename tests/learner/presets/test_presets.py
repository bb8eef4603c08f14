"""Presets fit every kind of environment and every number of lanes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from sampler.config import SamplerConfig
from sampler.errors import ConfigError
from sampler.learner.algorithms.registry import ALGORITHMS, Q_NETWORK
from sampler.learner.presets import choose_preset, family_of
from sampler.models import ModelConfig

FRAMES = gym.spaces.Box(0, 255, (84, 84), np.uint8)
STACK = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
VECTOR = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
CHOICE = gym.spaces.Discrete(2)
FORCE = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)
SMALL = gym.spaces.Box(0, 255, (4, 12, 12), np.uint8)
TASKS = {"images": (SMALL, CHOICE), "continuous": (VECTOR, FORCE), "classic": (VECTOR, CHOICE)}


def test_families():
    assert family_of(FRAMES, CHOICE) == "images"
    assert family_of(gym.spaces.Dict({"eye": STACK, "state": VECTOR}), FORCE) == "images"
    assert family_of(VECTOR, gym.spaces.Tuple((CHOICE, FORCE))) == "continuous control"
    assert family_of(VECTOR, gym.spaces.MultiDiscrete([2, 3])) == "classic control"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "given", [{}, {"workers": 1, "envs_per_worker": 1}, {"workers": 32}, {"envs_per_worker": 6}]
)
def test_a_preset_makes_a_sampler_and_a_learner(algorithm, task, given):
    spaces = TASKS[task]
    if task == "continuous" and ALGORITHMS[algorithm].model is Q_NETWORK:
        with pytest.raises(ConfigError, match="Discrete"):
            ALGORITHMS[algorithm].model(*spaces, ModelConfig())
        return
    preset = choose_preset(algorithm, *spaces, **given)
    config = SamplerConfig(env="any", **preset.sampler)
    for name, value in given.items():
        assert getattr(config, name) == value
    kind = ALGORITHMS[algorithm]
    model = kind.model(*spaces, preset.model)
    assert type(preset.learner) is kind.config
    learner = kind.learner(model, *spaces, preset.learner, device="cpu")
    learner.check_sampler(config)
    assert config.sync == kind.learner.sync
    if config.sync:
        assert config.batch == config.lanes


def test_the_published_atari_settings():
    appo = choose_preset("appo", STACK, CHOICE, workers=4)
    assert appo.sampler["rollout"] * appo.sampler["batch"] == 1024
    assert (appo.learner.learning_rate, appo.learner.epsilon) == (1e-4, 1e-6)
    assert (appo.learner.max_grad_norm, appo.learner.entropy_coef) == (4.0, 0.003)
    ppo = choose_preset("ppo", STACK, CHOICE)
    assert (ppo.sampler["batch"], ppo.sampler["rollout"]) == (8, 128)
    assert (ppo.learner.epochs, ppo.learner.minibatches, ppo.learner.clip) == (4, 4, 0.1)
    assert (ppo.learner.learning_rate, ppo.learner.anneal_learning_rate) == (2.5e-4, True)
    impala = choose_preset("impala", STACK, CHOICE, workers=4)
    assert (impala.sampler["batch"], impala.sampler["rollout"]) == (32, 20)
    assert (impala.learner.optimiser, impala.learner.epsilon) == ("rmsprop_tf", 0.01)
    assert (impala.learner.max_grad_norm, impala.learner.reward_clip) == (40.0, 1.0)
    for algorithm in ALGORITHMS.keys() - {"r2d2"}:
        assert choose_preset(algorithm, STACK, CHOICE).learner.reward_clip == 1.0


@pytest.mark.parametrize("workers", [1, 2, 32])
def test_minibatches_keep_their_size(workers):
    usual = choose_preset("ppo", VECTOR, CHOICE)
    steps = usual.sampler["batch"] * usual.sampler["rollout"] / usual.learner.minibatches
    preset = choose_preset("ppo", VECTOR, CHOICE, workers=workers)
    batch = preset.sampler["batch"] * preset.sampler["rollout"]
    assert batch / preset.learner.minibatches == steps


def test_the_choice_in_words():
    words = choose_preset("ppo", VECTOR, CHOICE).describe()
    assert words.startswith("ppo with settings for classic control: sampler ")
    assert "sync=True" in words
    assert "learning_rate=" in words
    assert "\n" not in words


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(ConfigError, match="algo='sarsa' is not one of appo, ppo, impala"):
        choose_preset("sarsa", VECTOR, CHOICE)


def test_the_published_settings_of_r2d2():
    preset = choose_preset("r2d2", STACK, CHOICE)
    learner = preset.learner
    assert (preset.sampler["rollout"], preset.sampler["overlap"]) == (120, 80)
    assert (learner.burn_in, learner.sequence, learner.batch_size) == (40, 80, 64)
    assert (learner.learning_rate, learner.epsilon, learner.gamma) == (1e-4, 1e-3, 0.997)
    assert (learner.alpha, learner.beta, learner.eta) == (0.9, 0.6, 0.9)
    assert (learner.n_step, learner.target_every, learner.reward_clip) == (5, 2500, 0.0)
    assert preset.model.core == "lstm"


def test_goals_are_replaced_in_hindsight():
    part = gym.spaces.MultiBinary(4)
    goals = gym.spaces.Dict(observation=part, achieved_goal=part, desired_goal=part)
    assert choose_preset("dqn", goals, CHOICE).learner.hindsight == "future"
    assert choose_preset("dqn", VECTOR, CHOICE).learner.hindsight == "none"
