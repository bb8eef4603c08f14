"""Presets fit every kind of environment and every number of lanes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from sampler.config import SamplerConfig
from sampler.errors import ConfigError
from sampler.learner.presets import ALGORITHMS, choose_preset, family_of
from sampler.models import make_model

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
    preset = choose_preset(algorithm, *spaces, **given)
    config = SamplerConfig(env="any", **preset.sampler)
    for name, value in given.items():
        assert getattr(config, name) == value
    model = make_model(*spaces, preset.model)
    kind = ALGORITHMS[algorithm]
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
    for algorithm in ALGORITHMS:
        assert choose_preset(algorithm, STACK, CHOICE).learner.reward_clip == 1.0


def test_the_choice_in_words():
    words = choose_preset("ppo", VECTOR, CHOICE).describe()
    assert words.startswith("ppo with settings for classic control: sampler ")
    assert "sync=True" in words
    assert "learning_rate=" in words
    assert "\n" not in words


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(ConfigError, match="algo='sarsa' is not one of appo, ppo, impala, a2c"):
        choose_preset("sarsa", VECTOR, CHOICE)
