"""Environments that draw from the global generators play other games in every worker."""

from __future__ import annotations

import random
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sampler import Sampler, SamplerConfig

CONFIG = SamplerConfig(
    env="",
    workers=4,
    envs_per_worker=1,
    groups=1,
    rollout=4,
    batch=4,
    inference="random",
    seed=3,
)


class Global(gym.Env):
    """Observes and rewards numbers of a global generator of numpy, random or torch."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, source):
        self.source = source

    def draw(self):
        if self.source == "torch":
            import torch

            return float(torch.rand(()))
        return float(np.random.rand() if self.source == "numpy" else random.random())  # noqa: NPY002

    def reset(self, *, seed=None, options=None):
        return np.array([self.draw()]), {}

    def step(self, action):
        return np.array([self.draw()]), 0.0, False, False, {}


def first_rows(config):
    """Observations of each lane's first row."""
    with Sampler(config) as sampler:
        rows = {}
        while len(rows) < config.lanes:
            batch = sampler.get_batch()
            for row in np.flatnonzero(batch.age[:, 0] == 0):  # episodes never end
                rows[int(batch.lane_id[row])] = np.array(batch.obs[row]).tobytes()
        return rows


@pytest.mark.parametrize(
    ("source", "changes"),
    [("numpy", {}), ("random", {}), ("torch", {"policy_workers": 0}), ("numpy", {"groups": 1})],
)
def test_workers_draw_different_numbers_and_the_same_again(source, changes):
    config = replace(CONFIG, env=Global, env_kwargs={"source": source}, **changes)
    rows = first_rows(config)
    assert len(set(rows.values())) == 4
    if source != "torch":
        assert first_rows(config) == rows
        assert not set(first_rows(replace(config, seed=4)).values()) & set(rows.values())


def test_the_callers_own_generators_are_left_alone():
    before = np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    with Sampler(replace(CONFIG, env="CartPole-v1", serial=True)) as sampler:
        sampler.get_batch()
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # noqa: NPY002
