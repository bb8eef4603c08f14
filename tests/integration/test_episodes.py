"""Reported episodes are whole games with raw scores, wherever rows and lives end."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from sampler import Sampler, SamplerConfig
from sampler.envs.frames import FrameEnv
from sampler.shm.mailbox import RING, Episode

CONFIG = SamplerConfig(
    env="",
    workers=1,
    envs_per_worker=2,
    groups=1,
    rollout=5,
    batch=2,
    inference="random",
    serial=True,
)


class Lives(FrameEnv):
    """Games of `lives` lives of `steps` steps; step n of a game has reward n (or a fraction).

    After a lost life, reset goes on with the game, as on Atari; it may score and even end it.
    """

    frame_skip = 4

    def __init__(self, lives=3, steps=4, unit=1.0, reset_reward=0.0):
        super().__init__(actions=2, shape=(2, 2))
        self.lives, self.steps, self.unit, self.reset_reward = lives, steps, unit, reset_reward
        self.left = 0

    def reset_into(self, out, seed=None):
        self.t = 0
        out[:] = 0
        if self.left and seed is None:
            return {"reset_reward": self.reset_reward}
        self.left, self.total = self.lives, 0
        return {}

    def step_into(self, action, out):
        self.t += 1
        self.total += 1
        dead = self.t == self.steps
        self.left -= dead
        info = {"game_over": self.left == 0} if dead else {}
        out[:] = self.t
        return self.total * self.unit, dead, False, info


def games(config, steps=200):
    with Sampler(config) as sampler:
        found = []
        while sampler.stats()["steps"] < steps:
            sampler.get_batch()
            found += sampler.episodes()
        return found, sampler.stats()


@pytest.mark.parametrize("changes", [{}, {"overlap": 3}, {"rollout": 1}, {"rollout": 31}])
def test_scores_are_of_whole_games(changes):
    found, stats = games(replace(CONFIG, env=Lives, **changes))
    assert set(found) == {Episode(lane, sum(range(13)), 12, 48) for lane in range(2)}
    assert stats["episodes"] in range(3 * len(found), 3 * len(found) + 3 * 2)  # lives
    assert stats["frames"] == 4 * stats["steps"]
    assert stats["episodes_missed"] == 0


def test_what_a_reset_scores_belongs_to_the_game():
    config = replace(CONFIG, env=Lives, env_kwargs={"reset_reward": 100.0})
    found, _ = games(config)
    assert {episode.score for episode in found} == {sum(range(13)) + 200.0}
    with Sampler(config) as sampler:  # but it is not a reward of the row
        for _ in range(10):
            assert sampler.get_batch().rewards.max() <= 12


def test_fractions_add_up_over_many_games():
    config = replace(CONFIG, env=Lives, env_kwargs={"unit": 0.1, "steps": 7}, rollout=4)
    found, _ = games(config, steps=3000)
    assert len(found) > 100
    for episode in found:
        assert episode.score == pytest.approx(23.1, rel=1e-6)


def test_games_that_nobody_fetched_are_counted():
    config = replace(CONFIG, env=Lives, env_kwargs={"lives": 1, "steps": 1}, rollout=50)
    with Sampler(config) as sampler:
        while sampler.stats()["episodes"] < 3 * RING:
            sampler.get_batch()
        found = sampler.episodes()
        stats = sampler.stats()
        assert len(found) + stats["episodes_missed"] == stats["episodes"]
        assert stats["episodes_missed"] > 0
        assert sampler.episodes() == []


class ManyLanes(gym.vector.VectorEnv):
    """Lane l plays games of 1 + l % 9 steps; each has its length as its score."""

    single_observation_space = observation_space = gym.spaces.Discrete(2)
    single_action_space = gym.spaces.Discrete(2)
    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, lanes):
        self.num_envs = lanes
        self.lengths = 1 + np.arange(lanes) % 9
        self.t = np.zeros(lanes, np.int64)

    def reset(self, *, seed=None, options=None):
        self.t[:] = 0
        return np.zeros(self.num_envs, np.int64), {}

    def step(self, actions):
        again = self.t == self.lengths
        self.t = np.where(again, 0, self.t + 1)
        rewards = np.where(again, 0.0, 1.0)
        done = self.t == self.lengths
        nothing = np.zeros_like(done)
        return np.zeros(self.num_envs, np.int64), rewards, done, nothing, {}


def test_sums_are_exact_and_the_list_is_a_fair_sample_with_thousands_of_lanes():
    lanes, steps = 4095, 90  # a whole number of games in every lane: each takes a step to reset
    config = replace(
        CONFIG,
        env=ManyLanes,
        env_kwargs={"lanes": lanes},
        envs_per_worker=lanes,
        batch=lanes,
        rollout=steps,
        buffers=2,
    )
    with Sampler(config) as sampler:
        sampler.get_batch()
        stats, listed = sampler.stats(), sampler.episodes()
    lengths = 1 + np.arange(lanes) % 9
    played = (steps + 1) // (lengths + 1)  # the last may end without its reset
    assert stats["games"] == {
        "games": played.sum(),
        "score": float((played * lengths).sum()),
        "length": (played * lengths).sum(),
        "frames": (played * lengths).sum(),
    }
    assert len(listed) == RING
    mean, spread = np.average(lengths, weights=played), 2.6
    assert abs(np.mean([game.score for game in listed]) - mean) < 4 * spread / RING**0.5
    assert abs(np.mean([game.lane for game in listed]) - lanes / 2) < 4 * 0.29 * lanes / RING**0.5


class HalfAndHalf(ManyLanes):
    """Games of 4 steps, which score 1 in the first half of the lanes and 9 in the second."""

    def step(self, actions):
        again = self.t == 4
        self.t = np.where(again, 0, self.t + 1)
        done = self.t == 4
        scores = np.where(np.arange(self.num_envs) < self.num_envs // 2, 1.0, 9.0)
        nothing = np.zeros_like(done)
        return np.zeros(self.num_envs, np.int64), done * scores, done, nothing, {}


def test_the_mean_of_20480_games_of_4096_lanes_is_exact():
    kwargs = {"env_kwargs": {"lanes": 4096}, "envs_per_worker": 4096, "batch": 4096}
    with Sampler(replace(CONFIG, env=HalfAndHalf, rollout=25, buffers=2, **kwargs)) as sampler:
        sampler.get_batch()
        games, listed = sampler.stats()["games"], sampler.episodes()
    assert games["games"] == 20_480
    assert games["score"] / games["games"] == 5.0
    assert {game.score for game in listed} == {1.0, 9.0}
    assert abs(np.mean([game.score for game in listed]) - 5.0) < 4 * 4.0 / RING**0.5


def test_vector_environments_report_games_of_each_lane():
    def vector():
        return gym.vector.SyncVectorEnv([lambda: Lives(1, 3), lambda: Lives(1, 5)])

    found, _ = games(replace(CONFIG, env=vector))
    assert set(found) == {Episode(0, 6.0, 3, 3), Episode(1, 15.0, 5, 5)}
