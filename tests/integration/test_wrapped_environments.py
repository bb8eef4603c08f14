"""Wrappers around environments of single frames do what they do anywhere; attributes of other
environments mean nothing; scores are those below wrappers where the environment gives them."""

from __future__ import annotations

import logging
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from helpers.vectors import Numbers

from sampler import Sampler, SamplerConfig
from sampler.envs import make
from sampler.envs.counter import CounterFrames, decode
from sampler.envs.frames import FrameEnv, direct_frame_env, frame_skip, frame_stack
from sampler.evaluation import evaluate
from sampler.models import make_model

CONFIG = SamplerConfig(
    env="",
    workers=1,
    envs_per_worker=2,
    groups=1,
    rollout=9,
    batch=2,
    inference="random",
    serial=True,
)


class Frames(FrameEnv):
    """Frames that hold the step's number; reward 1; a life of `length` steps, and `lives` a game.

    Skips 3 frames a step. The game goes on at the next reset after a lost life only.
    """

    frame_stack = 2
    frame_skip = 3

    def __init__(self, length=1000, lives=1):
        super().__init__(actions=3, shape=(6, 6))
        self.length, self.lives = length, lives
        self.lost, self.goes_on, self.actions = 0, False, []

    def reset_into(self, out, seed=None):
        self.lost = self.lost if self.goes_on and seed is None else 0
        self.t, self.goes_on = 0, False
        out[:] = 0
        return {}

    def step_into(self, action, out):
        self.t += 1
        self.actions.append(action)
        out[:] = self.t
        dies = self.t == self.length
        self.lost += dies
        over = self.lost == self.lives
        self.goes_on = dies and not over
        return 1.0, dies, False, {"game_over": over}


class Twice(gym.Wrapper):
    """Every action is played twice."""

    def step(self, action):
        _, first, *_ = self.env.step(action)
        observation, second, *rest = self.env.step(action)
        return (observation, first + second, *rest)


class Own(Frames):
    """No wrapper at all, but another `step`."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return (observation, reward + 4, *rest)


def batch_of(env, **changes):
    with Sampler(replace(CONFIG, env=env, **changes)) as sampler:
        return sampler.get_batch()


@pytest.mark.parametrize(
    ("wrap", "rewards", "last"),
    [
        (lambda env: env, 1, 9),
        (wrappers.OrderEnforcing, 1, 9),
        (lambda env: wrappers.TransformReward(env, lambda r: 5 * r), 5, 9),
        (lambda env: wrappers.ClipReward(env, max_reward=0.5), 0.5, 9),
        (
            lambda env: wrappers.TransformObservation(
                env, lambda frame: 255 - frame, env.observation_space
            ),
            1,
            246,
        ),
        (lambda env: wrappers.ResizeObservation(env, (4, 4)), 1, 9),
        (Twice, 2, 18),
        (lambda env: Own(), 5, 9),
    ],
)
def test_what_wrappers_change_is_stored(wrap, rewards, last):
    batch = batch_of(lambda: wrap(Frames()))
    size = 4 if "Resize" in repr(wrap(Frames())) else 6
    assert batch.obs.shape == (2, 10, 2, size, size)  # two frames are stacked
    assert (batch.obs[:, -1, -1] == last).all()
    assert (batch.rewards == rewards).all()


def test_actions_are_changed_by_wrappers():
    env = wrappers.TransformAction(Frames(), lambda action: 2, spaces.Discrete(3))
    batch_of(lambda: env, envs_per_worker=1, batch=1)
    assert set(env.unwrapped.actions) == {2}
    assert direct_frame_env(env) is None


def test_observations_that_are_no_single_frame_are_taken_as_they_are():
    batch = batch_of(lambda: wrappers.FrameStackObservation(Frames(), 3))
    assert batch.obs.shape == (2, 10, 3, 6, 6)
    assert batch.obs[0, -1, :, 0, 0].tolist() == [7, 8, 9]
    space = spaces.Box(0.0, 1.0, (6, 6), np.float32)
    scaled = wrappers.TransformObservation(Frames(), lambda f: np.float32(f / 255), space)
    assert frame_stack(scaled) == 1
    assert frame_skip(scaled) == 3


def test_frames_are_counted_through_wrappers():
    def env():
        return wrappers.TimeLimit(Frames(), 5)

    with Sampler(replace(CONFIG, env=env)) as sampler:
        for _ in range(4):
            batch = sampler.get_batch()
        stats = sampler.stats()
        assert stats["frames"] == 3 * stats["steps"]
        assert batch.truncated.any()
        assert {(e.score, e.length, e.frames) for e in sampler.episodes()} == {(5.0, 5, 15)}


@pytest.mark.parametrize("lives", [2, 1000])
def test_a_truncation_ends_the_game(lives):
    """Its environment would say that the game goes on, as ours for Atari do at a lost life."""

    def env():
        return wrappers.TimeLimit(Frames(length=7, lives=lives), 5)

    def lost_first():
        return wrappers.TimeLimit(Frames(length=4, lives=lives), 5)

    with Sampler(replace(CONFIG, env=env)) as sampler:
        for _ in range(10):
            sampler.get_batch()
        games, stats = sampler.episodes(), sampler.stats()
        assert len(games) == stats["episodes"] > 10
        assert {game.score for game in games} == {5.0}
    factory = make_model(sampler.observation_space, sampler.action_space)
    assert evaluate(factory, env, episodes=4, lanes=2).scores.tolist() == [5.0] * 4
    if lives == 2:
        assert evaluate(factory, lost_first, episodes=4, lanes=2).scores.tolist() == [8.0] * 4


def test_atari_under_a_time_limit_reports_its_games():
    def env():
        return wrappers.TimeLimit(make("BreakoutNoFrameskip-v4"), 20)

    with Sampler(replace(CONFIG, env=env)) as sampler:
        for _ in range(12):
            batch = sampler.get_batch()
        assert batch.obs.shape == (2, 10, 4, 84, 84)
        games = sampler.episodes()
        assert len(games) >= 8
        assert {game.length for game in games} == {20}


class Ordinary(gym.Env):
    """Not a `FrameEnv`, though its attributes have the same names."""

    frame_stack = 4
    frame_skip = 4
    action_space = spaces.Discrete(2)

    def __init__(self, shape, dtype):
        self.observation_space = spaces.Box(0, 255, shape, dtype)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.high.copy(), {}

    def step(self, action):
        return self.observation_space.high.copy(), 0.0, False, False, {}

    def step_into(self, *_):
        raise AssertionError("only a FrameEnv's is called")

    reset_into = step_into


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((4, 84, 84), np.uint8), ((84, 84), np.uint8), ((3,), np.float32), ((4, 84, 84), np.float32)],
)
@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: wrappers.TimeLimit(env, 100)])
def test_attributes_of_other_environments_are_their_own(shape, dtype, wrap):
    with Sampler(replace(CONFIG, env=lambda: wrap(Ordinary(shape, dtype)))) as sampler:
        batch = sampler.get_batch()
        assert batch.obs.shape == (2, 10, *shape)
        assert sampler.observation_space.shape == shape
        assert sampler.stats()["frames"] == sampler.stats()["steps"]
    model = make_model(sampler.observation_space, sampler.action_space)
    limited = wrappers.TimeLimit(Ordinary(shape, dtype), 5)
    result = evaluate(model, lambda: limited, episodes=1, lanes=1)
    assert result.lengths.tolist() == [5]


def test_a_frame_env_must_write_frames():
    class Half(FrameEnv):
        def reset_into(self, out, seed=None):
            return {}

    with pytest.raises(TypeError, match="abstract"):
        Half(actions=2)


def test_direct_frames_are_those_of_the_environment_itself():
    env = CounterFrames()
    assert direct_frame_env(wrappers.PassiveEnvChecker(env)) is env
    frame, _ = env.reset(seed=4)
    assert decode(frame).tolist() == [4, 0, 0, -1]
    assert direct_frame_env(Own()) is None


def scaled(env):
    return wrappers.TransformReward(env, lambda reward: reward / 100)


def counted(env):
    return wrappers.RecordEpisodeStatistics(env)


SCALED = "scores are those that the environment gives in info"


@pytest.mark.parametrize("vector", [None, "lanes", "whole"])
@pytest.mark.parametrize("mode", list(gym.vector.AutoresetMode))
def test_scores_are_raw_below_wrappers_that_change_rewards(caplog, vector, mode):
    def env():
        if vector is None:
            return scaled(counted(Numbers()))
        if vector == "lanes":
            makers = [lambda: scaled(counted(Numbers()))] * 2
            return gym.vector.SyncVectorEnv(makers, autoreset_mode=mode)
        lanes = gym.vector.SyncVectorEnv([Numbers] * 2, autoreset_mode=mode)
        statistics = wrappers.vector.RecordEpisodeStatistics(lanes)
        return wrappers.vector.TransformReward(statistics, lambda rewards: rewards / 100)

    if vector == "whole" and mode is gym.vector.AutoresetMode.DISABLED:
        pytest.skip("Gymnasium's statistics restart in all lanes where one is reset")
    with caplog.at_level(logging.WARNING, "fastrl"):
        with Sampler(replace(CONFIG, env=env)) as sampler:
            for _ in range(6):
                batch = sampler.get_batch()
            games = sampler.episodes()
        assert [game.score for game in games if game.lane == 1][:3] == [10, 50, 90]
        assert batch.rewards.max() < 10  # what is learned from is what the wrapper made of it
        assert sum(SCALED in message for message in caplog.messages) == 1
        model = make_model(sampler.observation_space, sampler.action_space)
        scores = evaluate(model, env, episodes=4, lanes=2).scores
        assert scores.tolist() == [10, 50] * 2


def test_scores_of_pendulum_are_raw_where_its_rewards_are_normalized():
    def env():
        return wrappers.NormalizeReward(counted(gym.make("Pendulum-v1")))

    with Sampler(replace(CONFIG, env=env, rollout=200)) as sampler:
        for _ in range(3):
            rewards = sampler.get_batch().rewards
        games = sampler.episodes()
    assert len(games) >= 4
    assert all(game.score < -500 for game in games)
    assert rewards.sum(1).min() > -300


def test_scores_that_are_equal_need_no_words(caplog):
    with caplog.at_level(logging.WARNING, "fastrl"):
        with Sampler(replace(CONFIG, env=lambda: counted(Numbers()))) as sampler:
            for _ in range(6):
                sampler.get_batch()
        assert not any(SCALED in message for message in caplog.messages)


def test_games_of_several_episodes_add_up():
    def env():
        return scaled(counted(Numbers(length=2, lives=2)))

    with Sampler(replace(CONFIG, env=env)) as sampler:
        for _ in range(6):
            sampler.get_batch()
        scores = [game.score for game in sampler.episodes() if game.lane == 0]
    assert scores[:2] == [1 + 2 + 11 + 12, 21 + 22 + 31 + 32]
