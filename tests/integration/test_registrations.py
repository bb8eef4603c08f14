"""Ids that the caller has registered are the same environments in every process."""

from __future__ import annotations

import copy
import importlib
import subprocess
import sys
import textwrap
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sampler import ConfigError, Sampler, SamplerConfig

CONFIG = SamplerConfig(
    env="", workers=2, envs_per_worker=1, groups=1, rollout=4, batch=2, inference="random"
)


class Paid(gym.Env):
    """Every step has the reward that it was made with."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, reward=77.0):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), self.reward, False, False, {}


@pytest.fixture(autouse=True)
def _same_registry():
    before = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(before)


def rewards_of(config):
    with Sampler(config) as sampler:
        return set(np.unique(sampler.get_batch().rewards).tolist())


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("policy_workers", [0, 1])
def test_ids_of_the_caller(serial, policy_workers):
    config = replace(CONFIG, serial=serial, policy_workers=policy_workers)
    gym.register("Paid-v0", entry_point=Paid)
    assert rewards_of(replace(config, env="Paid-v0")) == {77.0}
    assert rewards_of(replace(config, env="Paid-v0", env_kwargs={"reward": 3.0})) == {3.0}
    assert rewards_of(replace(config, env=lambda: gym.make("Paid-v0"))) == {77.0}


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_stock_id_registered_anew_is_never_replaced(start_method):
    gym.register("CartPole-v1", entry_point=lambda: Paid(5.0))
    config = replace(CONFIG, start_method=start_method)
    assert rewards_of(replace(config, env="CartPole-v1")) == {5.0}


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
def test_nor_by_the_module_that_it_was_from(tmp_path, monkeypatch):
    (tmp_path / "module_of_ids.py").write_text(
        'import gymnasium as gym\ngym.register("Paid-v0", entry_point="nowhere:Stock")\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("module_of_ids")
    gym.register("Paid-v0", entry_point=Paid, kwargs={"reward": 9.0})
    assert rewards_of(replace(CONFIG, env="module_of_ids:Paid-v0")) == {9.0}


def test_time_limits_and_kwargs_come_along():
    gym.register("Short-v0", entry_point=Paid, max_episode_steps=2, kwargs={"reward": 1.0})
    with Sampler(replace(CONFIG, env="Short-v0")) as sampler:
        batch = sampler.get_batch()
        assert batch.truncated.any()
        assert batch.age.max() == 2


def test_what_cannot_be_sent_matters_only_where_it_is_made():
    gym.register("Other-v0", entry_point=Paid, kwargs={"reward": (n for n in range(3))})
    gym.register("Paid-v0", entry_point=Paid)
    assert rewards_of(replace(CONFIG, env="Paid-v0")) == {77.0}
    with pytest.raises(ConfigError, match="env Other-v0 cannot be sent to worker processes"):
        Sampler(replace(CONFIG, env="Other-v0"))


def test_an_entry_point_in_the_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import gymnasium as gym
            from sampler import Sampler, SamplerConfig
            from gymnasium.envs.classic_control.cartpole import CartPoleEnv

            class Mine(CartPoleEnv):
                def step(self, action):
                    observation, _, *rest = super().step(action)
                    return (observation, 12.0, *rest)

            gym.register("Mine-v0", entry_point="__main__:Mine")
            config = SamplerConfig(env="Mine-v0", workers=1, envs_per_worker=1, groups=1,
                                   rollout=4, batch=1, inference="random")
            with Sampler(config) as sampler:
                print(sampler.get_batch().rewards.max())
            """
        )
    )
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.stdout.strip() == "12.0", result.stderr


def test_a_config_is_copied_without_touching_the_registry():
    gym.register("Paid-v0", entry_point=Paid)
    config = replace(CONFIG, env="Paid-v0")
    assert copy.deepcopy(config) == config
    assert copy.copy(config) == config
    assert gym.registry["Paid-v0"].entry_point is Paid
