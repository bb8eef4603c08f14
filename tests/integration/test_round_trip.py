"""Observations, actions and rewards of any kind come through bit for bit."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import hypothesis.strategies as st
import numpy as np
import pytest
from gymnasium import spaces
from helpers.space_strategies import KEYS, SPACES, draw
from hypothesis import given, settings

from sampler import ConfigError, Sampler, SamplerConfig
from sampler.spaces import flatten, leaves

SERIAL = SamplerConfig(
    env="", workers=1, envs_per_worker=2, groups=1, rollout=4, batch=4, inference="random",
    serial=True,
)  # fmt: skip


class Recorder(gym.Env):
    """Random observations and rewards, of which it keeps copies, like those of the actions."""

    def __init__(self, observation_space, action_space, made):
        self.observation_space, self.action_space = observation_space, action_space
        self.log = []
        made.append(self.log)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(None, 0.0), {}

    def step(self, action):
        reward = float(self.np_random.normal()) * 10.0 ** int(self.np_random.integers(-6, 7))
        done = self.np_random.random() < 0.2
        return self._observe(action, reward), reward, bool(done), False, {}

    def _observe(self, action, reward):
        observation = draw(self.observation_space, self.np_random)
        self.log.append((_bytes(self.observation_space, observation), action, reward))
        return observation


def _bytes(space, value):
    """Leaf by leaf: what must be found again, and nothing that the environment may still change."""
    pairs = zip(leaves(space, "x"), flatten(space, value), strict=True)
    return [np.asarray(part, leaf.dtype).tobytes() for leaf, part in pairs]


def check(observation_space, action_space, config=SERIAL):
    made = []
    config = replace(
        config, env=lambda: Recorder(observation_space, action_space, made), env_kwargs={}
    )
    with Sampler(config) as sampler:
        batches = 3
        per_lane = config.batch // config.lanes
        for number in range(batches):
            batch = sampler.get_batch()
            obs = flatten(observation_space, batch.obs)
            actions = flatten(action_space, batch.actions)
            for row in range(len(batch)):
                lane, part = int(batch.lane_id[row]), row // config.lanes
                log = made[1 + lane]  # the first one is only looked at
                start = (number * per_lane + part) * config.rollout
                for t in range(config.rollout + 1):
                    stored = [leaf[row, t].tobytes() for leaf in obs]
                    assert stored == log[start + t][0]
                for t in range(config.rollout):
                    _, action, reward = log[start + t + 1]
                    assert batch.rewards[row, t] == np.float32(reward)
                    if batch.mask[row, t]:
                        taken = [leaf[row, t].tobytes() for leaf in actions]
                        assert taken == _bytes(action_space, action)
                        assert action_space.contains(action)


@settings(max_examples=30, deadline=None)
@given(observation_space=SPACES, action_space=SPACES, seed=st.integers(0, 1000))
def test_random_spaces_make_the_round_trip(observation_space, action_space, seed):
    try:
        check(observation_space, action_space, replace(SERIAL, seed=seed))
    except ConfigError as error:  # two leaves of one name, such as "a.b" and "b" within "a"
        assert "are called" in str(error), error  # noqa: PT017


@settings(max_examples=10, deadline=None)
@given(st.dictionaries(KEYS, st.just(spaces.Discrete(3)), min_size=2, max_size=5))
def test_any_keys(space):
    check(spaces.Dict(space), spaces.Discrete(2))


FIXED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (5, 4, 3), np.uint8),
        "speed": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        "inner": spaces.Tuple((spaces.Discrete(5, start=-2), spaces.MultiBinary((2, 2)))),
    }
)
ACTIONS = spaces.Tuple(
    (
        spaces.Box(-1.0, np.inf, (2,), np.float32),
        spaces.Dict({"a": spaces.MultiDiscrete([3, 5]), "b": spaces.Discrete(4)}),
    )
)


def test_dict_and_tuple_together():
    check(FIXED, ACTIONS)


def test_nested_spaces_in_processes():
    class Own(gym.Env):
        observation_space, action_space = FIXED, ACTIONS

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return draw(FIXED, self.np_random), {}

        def step(self, action):
            assert self.action_space.contains(action)
            done = bool(self.np_random.random() < 0.1)
            return draw(FIXED, self.np_random), 0.0, False, done, {}

    config = replace(SERIAL, env=Own, serial=False, workers=2, batch=8)
    with Sampler(config) as sampler:
        for _ in range(10):
            batch = sampler.get_batch()
            assert set(batch.obs) == {"camera", "speed", "inner"}
            assert batch.obs["camera"].shape == (8, 5, 5, 4, 3)
            assert batch.obs["inner"][1].shape == (8, 5, 2, 2)
            assert batch.actions[1]["a"].shape == (8, 4, 2)
            assert batch.actions[0].dtype == np.float32


@pytest.mark.parametrize("space", [FIXED["camera"], FIXED["speed"], FIXED], ids=str)
def test_an_array_that_the_environment_uses_again_is_not_aliased(space):
    class Reuses(gym.Env):
        observation_space, action_space = space, spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.value = draw(space, self.np_random)
            self._fill(0)
            return self.value, {}

        def _fill(self, number):
            self.number = number
            for part in flatten(self.observation_space, self.value):
                if isinstance(part, np.ndarray):
                    part[...] = number % 2

        def step(self, action):
            self._fill(self.number + 1)
            return self.value, 0.0, False, False, {}

    with Sampler(replace(SERIAL, env=Reuses)) as sampler:
        batch = sampler.get_batch()
        for leaf in flatten(space, batch.obs):
            if leaf.ndim > 2:
                by_step = leaf[:2].reshape(2, 5, -1)
                np.testing.assert_array_equal(by_step[..., 0], [[0, 1, 0, 1, 0]] * 2)
