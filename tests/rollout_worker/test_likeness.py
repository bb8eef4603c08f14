"""Lanes that are all alike, though their environment is random, are noticed."""

from __future__ import annotations

import logging
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sampler import Sampler, SamplerConfig

CONFIG = SamplerConfig(
    env="",
    workers=1,
    envs_per_worker=8,
    groups=2,
    rollout=5,
    batch=8,
    inference="random",
    serial=True,
)


class Game(gym.Env):
    """Random numbers from a generator of its own; episodes of 4 steps.

    ignores: the generator is the same in every lane, whatever the seed. moves: actions count.
    random: there are random numbers at all. starts: an episode begins with one, not with 0.
    """

    observation_space = spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, ignores=True, moves=False, random=True, starts=True):
        self.ignores, self.moves, self.random, self.starts = ignores, moves, random, starts
        self.generator = np.random.default_rng(7)

    def reset(self, *, seed=None, options=None):
        if seed is not None and not self.ignores:
            self.generator = np.random.default_rng(seed)
        self.t = 0
        self.at = self.noise() if self.starts else 0.0
        return np.array([self.at], np.float32), {}

    def noise(self):
        return self.generator.normal() if self.random else 0.5

    def step(self, action):
        self.t += 1
        self.at += self.noise() + self.moves * action[0]
        return np.array([self.at], np.float32), float(self.at), self.t == 4, False, {}


def warnings_of(caplog, config, batches=6):
    with caplog.at_level(logging.WARNING, "fastrl"), Sampler(config) as sampler:
        for _ in range(batches):
            sampler.get_batch()
    return [message for message in caplog.messages if "ignore its seed" in message]


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("rollout", [1, 5, 13])
def test_an_ignored_seed_is_said_once(caplog, moves, groups, rollout):
    kwargs = {"moves": moves}
    config = replace(CONFIG, env=Game, env_kwargs=kwargs, groups=groups, rollout=rollout)
    found = warnings_of(caplog, config, batches=12)
    assert len(found) == 1
    assert found[0].startswith("lanes 0 to 3 play the same games, though one game differs")


def test_randomness_after_the_start_is_found_too(caplog):
    config = replace(CONFIG, env=Game, env_kwargs={"starts": False})
    assert len(warnings_of(caplog, config)) == 1


@pytest.mark.parametrize(
    "kwargs",
    [
        {"ignores": False},
        {"ignores": False, "moves": True},
        {"ignores": False, "starts": False},
        {"random": False},
        {"random": False, "moves": True},
        {"moves": True, "starts": False},  # alike only as long as the actions are
    ],
)
@pytest.mark.parametrize("rollout", [1, 5, 13])
def test_others_are_not(caplog, kwargs, rollout):
    config = replace(CONFIG, env=Game, env_kwargs=kwargs, rollout=rollout)
    assert warnings_of(caplog, config, batches=15) == []


@pytest.mark.parametrize("env", ["CartPole-v1", "fastrl/Null-v0", "fastrl/RepeatPrevious-v0"])
def test_ordinary_environments_are_not(caplog, env):
    assert warnings_of(caplog, replace(CONFIG, env=env, rollout=40), batches=20) == []


def test_lanes_that_are_meant_to_be_identical_are_not(caplog):
    assert warnings_of(caplog, replace(CONFIG, env=Game, identical_lanes=True)) == []
