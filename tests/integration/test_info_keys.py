"""Numbers in environments' infos reach the sampler's statistics, from every kind of environment."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sampler import EnvError, Sampler, SamplerConfig
from sampler.errors import ConfigError
from sampler.shm.info_figures import bin_of

LENGTH = 5
KEYS = ("coins", "coins:last", "nested.depth:last", "coins:histogram", "absent")


class Miner(gym.Env):
    """Has `coins` = step, each second step alone, and reports the episode's depth at its end."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, wrong=None):
        self.wrong = wrong

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {"coins": 1000}  # of a reset, which is no step

    def step(self, action):
        self.at += 1
        ended = self.at == LENGTH
        info = {} if self.at % 2 == 0 else {"coins": np.int64(self.at), "nested": {"depth": 2.5}}
        if self.wrong is not None:
            info["coins"] = self.wrong
        return np.full(1, self.at, np.float32), 1.0, ended, False, info


def config(env=Miner, keys=KEYS, **changes):
    sizes = {"workers": 1, "envs_per_worker": 2, "groups": 1, "rollout": 12, "batch": 2}
    return SamplerConfig(env=env, info_keys=keys, inference="random", **sizes, **changes)


def infos(configuration, batches=4):
    with Sampler(configuration) as sampler:
        for _ in range(batches):
            sampler.get_batch()
        sampler.pause()
        return sampler.stats()


def check(stats):
    """Coins come as 1, 3 and 5 in every episode, of which some are under way."""
    found = stats["infos"]
    ends = found["coins:last"]["count"]
    assert 0 < ends <= stats["episodes"]
    assert found["coins:last"] | {"histogram": 0} == {
        "count": ends, "sum": 5.0 * ends, "low": 5.0, "high": 5.0, "histogram": 0,
    }  # fmt: skip
    assert found["nested.depth:last"]["sum"] == 2.5 * ends
    steps = found["coins:mean"]
    assert (steps["low"], steps["high"]) == (1.0, 5.0)
    assert 9 * ends <= steps["sum"] <= 9 * ends + 2 * 4
    assert found["absent:mean"]["count"] == 0
    histogram = found["coins:histogram"]["histogram"]
    assert histogram.sum() == histogram[bin_of(5.0)] >= ends


def test_separate_environments_in_the_callers_process():
    stats = infos(config(serial=True))
    check(stats)
    assert stats["infos"]["coins:last"]["count"] == stats["episodes"]


@pytest.mark.slow
def test_separate_environments_in_workers():
    check(infos(config()))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_environments(mode):
    env = partial(SyncVectorEnv, [Miner, Miner], autoreset_mode=mode)
    check(infos(config(env, serial=True)))


def test_nothing_is_counted_unless_asked():
    assert infos(config(keys=(), serial=True), 1)["infos"] == {}


def test_what_is_not_a_number_is_an_error_and_what_is_not_finite_is_left_out():
    with pytest.raises(EnvError, match=r"info\['coins'\] is a str, not a number; correct"):
        infos(config(partial(Miner, "many"), serial=True))
    assert infos(config(partial(Miner, np.nan), serial=True))["infos"]["coins:mean"]["count"] == 0


@pytest.mark.parametrize("keys", ["coins", ("coins:median",), ("a..b",), ("a", "a:mean")])
def test_other_forms_are_refused(keys):
    with pytest.raises(ConfigError, match="info_keys="):
        config(keys=keys)
