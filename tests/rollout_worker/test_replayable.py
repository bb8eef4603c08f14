from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from sampler.envs.counter import ACTIONS, CounterEnv
from sampler.errors import StateError
from sampler.rollout_worker import replayable
from sampler.rollout_worker.replayable import (
    ActionLog,
    ReplayableEnvLanes,
    ReplayableVectorLanes,
)

LANES = 3


class Walk(gym.Env):
    """Noisy sums of the actions; half of the episodes' ends do not end the game."""

    observation_space = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gym.spaces.Tuple(
        (gym.spaces.Discrete(3), gym.spaces.Box(-1.0, 1.0, (2,), np.float32))
    )
    luck = 0.0  # what the environment depends on beside its seed

    def __init__(self):
        self.seeds, self.resets, self.position = [], 0, np.zeros(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.seeds.append(seed)
        self.resets += 1
        self.position = self.np_random.normal(size=2)
        return self.position.astype(np.float32), {}

    def step(self, action):
        choice, vector = action
        self.position = self.position + choice + vector + self.np_random.normal(size=2) + self.luck
        ended = self.np_random.random() < 0.2
        info = {"game_over": self.np_random.random() < 0.5}
        return self.position.astype(np.float32), float(choice), ended, False, info


def heartbeat():
    return memoryview(bytearray(8)).cast("q")


def new_seed(lane, number):
    return 1000 * lane + number


def env_lanes(envs=None):
    envs = envs or [Walk() for _ in range(LANES)]
    return ReplayableEnvLanes(envs, [7, 8, 9], heartbeat(), 0, False, new_seed)


def vector_lanes(mode=AutoresetMode.NEXT_STEP, max_length=6):
    makers = [lambda: CounterEnv(max_length=max_length)] * LANES
    env = gym.vector.SyncVectorEnv(makers, autoreset_mode=mode)
    return ReplayableVectorLanes(env, [7, 8, 9], heartbeat(), 0)


def together():
    """Episodes of one step: all lanes end in every step."""
    return vector_lanes(AutoresetMode.SAME_STEP, max_length=1)


def play(lanes, steps, rng, observations):
    """Random actions; everything that came back. `observations` [lanes, 1, ...] hold the last."""
    seen = []
    for _ in range(steps):
        if isinstance(lanes, ReplayableVectorLanes):
            actions = [rng.integers(ACTIONS, size=LANES)]
        else:
            vectors = rng.uniform(-1, 1, (LANES, 2)).astype(np.float32)
            actions = [rng.integers(3, size=LANES), vectors]
        result = lanes.step(actions, observations, 0, None, 0)
        shown = observations[0][:, 0].tolist()
        seen.append((shown, list(result.rewards), list(result.ended), list(result.resets)))
    return seen


def started(lanes):
    space = getattr(lanes.envs[0] if hasattr(lanes, "envs") else lanes, "observation_space", None)
    space = space or lanes.env.single_observation_space
    observations = [np.zeros((LANES, 1, *space.shape), space.dtype)]
    lanes.reset(observations, 0, None)
    return observations


@pytest.mark.parametrize(
    "make",
    [
        env_lanes,
        vector_lanes,
        together,
        partial(vector_lanes, AutoresetMode.SAME_STEP),
        partial(vector_lanes, AutoresetMode.DISABLED),
    ],
)
@pytest.mark.parametrize("steps", [0, 1, 100, 163])
def test_restored_lanes_go_on_as_the_saved_ones_do(make, steps):
    lanes = make()
    observations = started(lanes)
    play(lanes, steps, np.random.default_rng(1), observations)
    restored = make()
    again = started(restored)
    again[0][...] = observations[0]
    restored.load_state_dict(lanes.state_dict(), [array[:, 0] for array in observations], None)
    after = play(lanes, 50, np.random.default_rng(2), observations)
    assert play(restored, 50, np.random.default_rng(2), again) == after


def test_lanes_are_seeded_anew_when_a_game_is_over_and_the_log_is_long(monkeypatch):
    monkeypatch.setattr(replayable, "RESEED_STEPS", 20)
    lanes = env_lanes()
    play(lanes, 300, np.random.default_rng(1), started(lanes))
    for lane, env in enumerate(lanes.envs):
        count = len(env.seeds)
        assert count > 5
        assert env.seeds == [7 + lane, *(new_seed(lane, n) for n in range(1, count))]
        assert env.resets > 2 * count  # lives lost, and games that were over too soon
        assert lanes.log.counts[lane] < 100


def test_an_environment_that_does_something_else_is_refused(monkeypatch):
    lanes = env_lanes()
    observations = started(lanes)
    play(lanes, 30, np.random.default_rng(1), observations)
    monkeypatch.setattr(Walk, "luck", 1e-3)
    with pytest.raises(StateError, match="depends on more than its seed"):
        env_lanes().load_state_dict(lanes.state_dict(), [a[:, 0] for a in observations], None)


def test_an_environment_that_fails_when_played_again_is_refused(monkeypatch):
    lanes = env_lanes()
    observations = started(lanes)
    play(lanes, 30, np.random.default_rng(1), observations)
    monkeypatch.setattr(Walk, "luck", "bad")
    with pytest.raises(StateError, match=r"played again, the game failed \(.*Error"):
        env_lanes().load_state_dict(lanes.state_dict(), [a[:, 0] for a in observations], None)


def test_a_log_grows_and_comes_back():
    space = gym.spaces.Dict({"a": gym.spaces.Discrete(5), "b": gym.spaces.MultiBinary(2)})
    log, copy = ActionLog(2, space), ActionLog(2, space)
    for step in range(200):
        log.add([np.array([step % 5, 1]), np.full((2, 2), step % 2)])
        if step == 150:
            log.clear(1)
    assert log.counts.tolist() == [200, 49]
    state = log.state_dict()
    assert [leaf.shape for leaf in state["actions"]] == [(249,), (249, 2)]
    copy.load_state_dict(state)
    for before, after in zip(state["actions"], copy.state_dict()["actions"], strict=True):
        np.testing.assert_array_equal(before, after)
