"""The `fastrl/...` environments do what their docstrings say."""

from __future__ import annotations

import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sampler.envs import make
from sampler.envs.counter import counter_reward, decode, intact


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("fastrl/Counter-v0", {"min_length": 3}),
        ("fastrl/Counter-v0", {"min_length": 3, "frames": True}),
        ("fastrl/RepeatPrevious-v0", {}),
        ("fastrl/RepeatFirst-v0", {}),
        ("fastrl/CartPoleNoVelocity-v0", {}),
        ("fastrl/BitFlip-v0", {}),
        ("fastrl/Null-v0", {}),
        ("fastrl/Sleep-v0", {}),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # unbounded Boxes
def test_gymnasium_checks_pass(env_id, kwargs):
    check_env(make(env_id, **kwargs), skip_render_check=True)


def play(env, seed, episodes, policy=None):
    """All (observation, action, reward, terminated, truncated, next observation) of episodes."""
    rng = np.random.default_rng(seed)
    transitions = []
    observation, _ = env.reset(seed=seed)
    while episodes:
        action = policy(observation) if policy else int(rng.integers(env.action_space.n))
        following, reward, terminated, truncated, _ = env.step(action)
        transitions.append((observation, action, reward, terminated, truncated, following))
        observation = following
        if terminated or truncated:
            episodes -= 1
            observation, _ = env.reset()
    return transitions


@pytest.mark.parametrize("kwargs", [{}, {"copies": 5}, {"frames": True}])
def test_counter_tells_lane_episode_step_and_action(kwargs):
    env = make("fastrl/Counter-v0", min_length=2, max_length=9, **kwargs)
    transitions = play(env, seed=2**40 + 7, episodes=200)
    observations = np.stack([t[0] for t in transitions])
    following = np.stack([t[5] for t in transitions])
    ends = np.array([t[3] or t[4] for t in transitions])
    assert intact(observations).all()
    lane, episode, step, action = decode(observations).T
    assert (lane == 2**40 + 7).all()
    np.testing.assert_array_equal(episode, np.cumsum(ends) - ends)
    starts = np.append(True, ends[:-1])
    np.testing.assert_array_equal(step == 0, starts)
    np.testing.assert_array_equal(np.diff(step)[~ends[:-1]], 1)
    np.testing.assert_array_equal(action == -1, starts)

    after = decode(following)
    np.testing.assert_array_equal(after[:, 2], step + 1)
    np.testing.assert_array_equal(after[:, 3], [t[1] for t in transitions])
    rewards = np.array([t[2] for t in transitions])
    np.testing.assert_array_equal(rewards, counter_reward(lane, episode, step + 1))
    lengths = after[ends, 2]
    assert set(lengths) == set(range(2, 10))
    terminated = np.array([t[3] for t in transitions])[ends]
    assert 60 < terminated.sum() < 140


def test_counter_shows_tearing():
    env = make("fastrl/Counter-v0", frames=True)
    frame, _ = env.reset(seed=1)
    following = env.step(2)[0]
    torn = frame.copy()
    torn[40:] = following[40:]
    np.testing.assert_array_equal(intact(np.stack([frame, following, torn])), [True, True, False])


def test_counter_frames_are_written_in_place():
    env = make("fastrl/Counter-v0", frames=True, min_length=9)
    assert env.frame_stack == 4
    rows = np.zeros((3, 84, 84), np.uint8)
    env.reset_into(rows[0], seed=5)
    reward, terminated, truncated, info = env.step_into(3, rows[1])
    assert (reward, terminated, truncated, info) == (counter_reward(5, 0, 1), False, False, {})
    np.testing.assert_array_equal(decode(rows), [[5, 0, 0, -1], [5, 0, 1, 3], [0, 0, 0, 0]])


def test_repeat_previous_pays_for_the_suit_of_k_steps_ago():
    env = make("fastrl/RepeatPrevious-v0")
    seen = []

    def perfect(suit):
        if len(seen) % 52 == 0:
            seen.clear()
        seen.append(suit)
        return seen[-5] if len(seen) > 4 else 0

    transitions = play(env, seed=1, episodes=3, policy=perfect)
    assert len(transitions) == 3 * 52
    assert sum(t[2] for t in transitions) == pytest.approx(3.0)
    assert all(t[2] == 0.0 for t in transitions[:4])
    assert [t[3] for t in transitions].index(True) == 51
    suits = [t[0] for t in transitions[:52]]
    assert np.bincount(suits).tolist() == [13] * 4
    guesses = play(env, seed=1, episodes=400)
    assert sum(t[2] for t in guesses) / 400 == pytest.approx(-0.5, abs=0.05)


def test_repeat_first_pays_for_the_first_suit():
    env = make("fastrl/RepeatFirst-v0")
    first, _ = env.reset(seed=3)
    total, done = 0.0, False
    while not done:
        _, reward, done, truncated, _ = env.step(first)
        total += reward
    assert total == pytest.approx(1.0)
    assert not truncated
    env.reset(seed=3)
    assert env.step((first + 1) % 4)[1] == pytest.approx(-1 / 52)


def test_cartpole_without_velocities_is_cartpole():
    env, whole = make("fastrl/CartPoleNoVelocity-v0"), gym.make("CartPole-v1")
    seen, expected = env.reset(seed=4)[0], whole.reset(seed=4)[0]
    assert env.observation_space.contains(seen)
    for t in range(20):
        np.testing.assert_array_equal(seen, expected[[0, 2]])
        seen, reward, terminated, truncated, _ = env.step(t % 2)
        expected, *rest = whole.step(t % 2)
        assert (reward, terminated, truncated) == tuple(rest[:3])


def test_cartpole_without_velocities_is_truncated_at_its_limit():
    env = make("fastrl/CartPoleNoVelocity-v0", max_steps=5)
    for _ in range(2):
        env.reset(seed=4)
        ends = [env.step(t % 2)[2:4] for t in range(5)]
        assert ends == [(False, False)] * 4 + [(False, True)]


def test_bitflip_ends_at_its_goal_or_its_limit():
    env = make("fastrl/BitFlip-v0", bits=6)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        assert (observation["observation"] != observation["desired_goal"]).any()
        wrong = np.flatnonzero(observation["observation"] != observation["desired_goal"])
        for bit in wrong:
            observation, reward, terminated, truncated, info = env.step(bit)
            last = bit == wrong[-1]
            assert (reward, terminated, truncated) == (0.0 if last else -1.0, last, False)
            assert info == {"is_success": last}
            assert reward == env.compute_reward(
                observation["achieved_goal"], observation["desired_goal"], info
            )
    observation, _ = env.reset(seed=0)
    bit = np.flatnonzero(observation["observation"] == observation["desired_goal"])[0]
    ends = [env.step(bit)[2:4] for _ in range(6)]
    assert ends == [(False, False)] * 5 + [(False, True)]


def test_bitflip_rewards_whole_batches():
    env = make("fastrl/BitFlip-v0", bits=3)
    achieved = np.array([[[0, 1, 1], [1, 1, 1]], [[0, 0, 0], [1, 0, 1]]])
    rewards = env.compute_reward(achieved, np.array([1, 1, 1]), {})
    assert rewards.dtype == np.float32
    np.testing.assert_array_equal(rewards, [[-1, 0], [-1, -1]])


def test_null_does_nothing():
    env = make("fastrl/Null-v0", length=3)
    assert (env.frame_stack, env.frame_skip, env.action_space.n) == (4, 1, 4)
    out = np.full((84, 84), 9, np.uint8)
    for _ in range(2):
        env.reset_into(out, seed=1)
        ends = [env.step_into(0, out) for _ in range(3)]
        assert ends == [(0.0, False, False, {})] * 2 + [(0.0, False, True, {})]
    assert (out == 9).all()
    assert not env.reset()[0].any()


def test_sleep_sleeps(monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    env = make("fastrl/Sleep-v0", step_us=300, reset_s=2.0)
    env.reset(seed=0)
    env.step(0)
    assert slept == [2.0, pytest.approx(300e-6)]
    slept.clear()
    env = make("fastrl/Sleep-v0", step_us=100, slow_lanes=0.25, slow_factor=5)
    for seed in range(200):
        env.reset(seed=seed)
        env.step(0)
    times = np.array(slept)
    assert set(np.round(times * 1e6)) == {100, 500}
    assert 25 < (times > 300e-6).sum() < 75
