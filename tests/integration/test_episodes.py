"""Reported episodes are whole games with raw scores, wherever rows and lives end."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
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


def test_vector_environments_report_games_of_each_lane():
    def vector():
        return gym.vector.SyncVectorEnv([lambda: Lives(1, 3), lambda: Lives(1, 5)])

    found, _ = games(replace(CONFIG, env=vector))
    assert set(found) == {Episode(0, 6.0, 3, 3), Episode(1, 15.0, 5, 5)}
