from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sampler import EnvError
from sampler.envs.counter import CounterFrames, decode
from sampler.envs.frames import direct_frame_env
from sampler.rollout_worker.lanes import unpack
from sampler.rollout_worker.separate_lanes import EnvLanes, how_it_ended
from sampler.rollout_worker.vector_lanes import VectorLanes

SPACE = spaces.Box(-9, 9, (2,), np.float32)


class Scripted(gym.Env):
    """Ends after `length` steps; remembers what it was given."""

    observation_space = SPACE

    def __init__(self, length=3, action_space=None):
        self.length = length
        self.action_space = action_space or spaces.Discrete(4, start=1)
        self.seeds, self.actions = [], []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.actions.append(action)
        self.t += 1
        done = self.t == self.length
        return np.full(2, self.t, np.float32), self.t / 2, done, False, {}


def heartbeat():
    return memoryview(bytearray(8)).cast("q")


def play(lanes, n, steps, actions=None):
    """Step a group; observations [n, steps + 1, 2] and what happened at each step."""
    observations = [np.zeros((n, steps + 1, 2), np.float32)]
    lanes.reset([array[:, :1] for array in observations], -1, None)
    seen = []
    for t in range(steps):
        chosen = [np.full(n, 1)] if actions is None else actions
        result = lanes.step(chosen, observations, t + 1, None, t + 1)
        seen.append((list(result.rewards), list(result.ended), list(result.resets)))
    return observations[0], seen


def make(kind, envs):
    if kind is EnvLanes:
        return EnvLanes(envs, [11, 12], heartbeat())
    return VectorLanes(
        gym.vector.SyncVectorEnv([lambda e=e: e for e in envs]), [11, 12], heartbeat()
    )


@pytest.mark.parametrize("kind", [EnvLanes, VectorLanes])
def test_an_episode_that_ends_is_reset_at_the_next_step(kind):
    envs = [Scripted(2), Scripted(3)]
    observations, seen = play(make(kind, envs), 2, 6)
    assert observations[0, :, 0].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert observations[1, :, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert [rewards for rewards, _, _ in seen] == [
        [0.5, 0.5], [1.0, 1.0], [0.0, 1.5], [0.5, 0.0], [1.0, 0.5], [0.0, 1.0],
    ]  # fmt: skip
    whole = (True, False, True)
    assert [ended for _, ended, _ in seen] == [
        [], [(0, *whole)], [(1, *whole)], [], [(0, *whole)], [],
    ]  # fmt: skip
    assert [resets for _, _, resets in seen] == [[], [], [0], [1], [], [0]]
    assert [env.seeds[0] for env in envs] == [11, 12]
    assert all(seed is None for env in envs for seed in env.seeds[1:])


def test_actions_are_in_the_units_of_the_space():
    env = Scripted()
    play(EnvLanes([env], [0], heartbeat()), 1, 2, [np.array([4])])
    assert env.actions == [4, 4]
    assert type(env.actions[0]) is int


def test_actions_are_clipped_to_their_bounds_and_never_views():
    env = Scripted(action_space=spaces.Box(-1.0, 1.0, (2,), np.float32))
    given = np.array([[5.0, -0.5]], np.float32)
    play(EnvLanes([env], [0], heartbeat()), 1, 1, [given])
    assert env.actions[0].tolist() == [1.0, -0.5]
    assert given.tolist() == [[5.0, -0.5]]  # what was stored stays as it was drawn
    assert not np.shares_memory(env.actions[0], given)


def test_nested_actions():
    space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Tuple((SPACE,))})
    env = Scripted(action_space=space)
    leaves = [np.array([2]), np.array([[20.0, 1.0]], np.float32)]
    play(EnvLanes([env], [0], heartbeat()), 1, 1, leaves)
    assert env.actions[0]["a"] == 2
    assert env.actions[0]["b"][0].tolist() == [9.0, 1.0]


def test_the_heartbeat_names_the_lane():
    beat = heartbeat()

    class Looks(Scripted):
        def step(self, action):
            seen.append(beat[0])
            return super().step(action)

    seen = []
    play(EnvLanes([Looks(), Looks()], [0, 1], beat, first_lane=6), 2, 2)
    assert seen == [6, 7, 6, 7]


def test_frames_are_written_in_place():
    lanes = EnvLanes([CounterFrames(), CounterFrames()], [5, 6], heartbeat())
    assert lanes.direct
    frames = [np.zeros((2, 4, 84, 84), np.uint8)]
    lanes.reset(frames, 0, None)
    lanes.step([np.array([3, 1])], frames, 1, None, 1)
    assert decode(frames[0])[:, :2].tolist() == [
        [[5, 0, 0, -1], [5, 0, 1, 3]],
        [[6, 0, 0, -1], [6, 0, 1, 1]],
    ]
    assert not frames[0][:, 2:].any()


def test_only_wrappers_that_change_nothing_are_looked_through():
    env = CounterFrames()
    wrapped = gym.wrappers.OrderEnforcing(gym.wrappers.PassiveEnvChecker(env))
    assert direct_frame_env(wrapped) is env
    changed = gym.wrappers.TransformReward(env, lambda r: r)
    assert direct_frame_env(gym.wrappers.OrderEnforcing(changed)) is None


@pytest.mark.parametrize("returned", [None, 3, [1, 2], (1, 2, 3), "ab"])
def test_unpacking_what_is_no_pair(returned):
    assert unpack((1, {}), 2, "reset") == (1, {})
    with pytest.raises(EnvError, match=r"reset\(\) returned .*, not a tuple of 2; follow"):
        unpack(returned, 2, "reset")


def test_how_an_episode_ended():
    assert how_it_ended(True, False, {}) == (True, False, True)
    assert how_it_ended(np.bool_(True), 0, {"game_over": False}) == (True, False, False)
    # A truncation ends the game whatever the environment below the time limit says.
    assert how_it_ended(np.bool_(False), 1, {"game_over": False}) == (False, True, True)
    for terminated, truncated, info in (("x", True, {}), (True, None, {}), (True, False, [])):
        with pytest.raises(EnvError, match=r"step\(\) returned"):
            how_it_ended(terminated, truncated, info)
