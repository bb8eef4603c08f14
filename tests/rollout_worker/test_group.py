"""A group without processes: its lanes are scripted, and the test chooses the actions."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from helpers.store import make_shared

from sampler import EnvError
from sampler.policy_worker.requests import RequestBook
from sampler.rollout_worker.games import Game
from sampler.rollout_worker.group import Group
from sampler.rollout_worker.lanes import StepResult
from sampler.rollout_worker.values import ValueCheck
from sampler.spaces import leaves

SPACE = spaces.Box(-1e6, 1e6, (2,), np.float32)


class Script:
    """Observations count the steps; lane 0 ends after steps 3 and 7 (the game only then), and the
    step after each resets."""

    def __init__(self):
        self.result = StepResult([0.0, 0.0])
        self.time = 0
        self.actions = []
        self.reset_games = []
        self.reward = 1.0
        self.log = {}

    def _observe(self, observations, at):
        observations[0][:, at] = self.time

    def reset(self, observations, at, mask):
        self.result.reset_games = self.reset_games
        self._observe(observations, at)

    def step(self, actions, observations, at, mask, mask_at):
        self.time += 1
        self.actions.append(actions[0].tolist())
        self._observe(observations, at)
        t = self.time
        self.result.reset_games = []
        self.result.resets = [0] if t in (4, 8) else []
        self.result.ended = [(0, t == 3, t == 7, t == 7)] if t in (3, 7) else []
        self.result.rewards = [0.0 if t in (4, 8) else self.reward, 10.0]
        return self.result

    def close(self):
        pass

    def state_dict(self):
        return {"time": self.time}

    def load_state_dict(self, state, observations, mask):
        self.time = state["time"]
        self.shown = observations[0].tolist()


class Played:
    """Group 0 of a sampler's shared memory, and what its policy worker sees of it."""

    def __init__(self, lanes=None, **changes):
        self.shared = make_shared(**changes)
        self.lanes = lanes or Script()
        values = ValueCheck(leaves(SPACE, "obs"), "Script")
        self.group = Group(0, self.lanes, self.shared, values)
        self.book = RequestBook(self.shared, 0)

    def start(self):
        self.group.start()
        assert self.group.claim()

    def step(self):
        """One step with the actions of the present entry; the games that were over after it."""
        self.group.ask()
        self.book.answer(self.book.collect())
        assert self.group.request.answered
        return self.group.finished_games(self.group.advance())

    def row(self, token=0):
        return self.shared.store.block(token)


def test_steps_fill_rows_and_finished_rows_are_handed_over():
    played = Played()
    played.start()
    played.row()["actions"][:] = [[1, 2, 3, 4], [5, 6, 7, 8]]
    for _ in range(4):
        assert played.step() == []
    row = played.row()
    assert played.lanes.actions == [[1, 5], [2, 6], [3, 7], [4, 8]]
    assert row["obs"][0, :, 0].tolist() == [0, 1, 2, 3, 4]
    assert row["rewards"].tolist() == [[1, 1, 1, 0], [10] * 4]
    assert row["terminated"].tolist() == [[False, False, True, False], [False] * 4]
    assert row["mask"].tolist() == [[True, True, True, False], [True] * 4]
    assert row["episode_id"].tolist() == [[0, 0, 0, 0], [0] * 4]
    assert row["age"].tolist() == [[0, 1, 2, 3, 0], [0, 1, 2, 3, 4]]
    assert played.group.real_steps == 7
    assert played.group.finish()
    assert played.group.claim()
    assert played.row(played.group.token)["episode_id"].tolist() == [[1] * 4, [0] * 4]


@pytest.mark.parametrize("overlap", [0, 2])
def test_games_go_on_over_rows_and_episodes(overlap):
    played = Played(overlap=overlap)
    played.start()
    games = []
    for _ in range(7):
        games += played.step()
        if played.group.step == 4:
            played.group.finish()
            played.group.claim()
    assert games == [Game(0, 6.0, 6)]


def test_games_go_on_where_rows_are_given_up():
    played = Played()
    played.start()
    games = played.step()
    assert played.group.cut() == 2
    assert played.group.claim()
    games += played.step()
    assert played.group.restart_rows() == 2
    for _ in range(4):
        games += played.step()
    played.group.finish()
    played.group.claim()
    assert games + played.step() == [Game(0, 6.0, 6)]


def test_the_first_reset_may_score():
    lanes = Script()
    lanes.reset_games = [(0, 100.0, False), (1, 50.0, True)]
    played = Played(lanes)
    played.start()
    assert played.group.games.scores.tolist() == [100.0, 0.0]


def test_without_free_rows_the_group_waits():
    played = Played()
    tokens = played.shared.tokens
    played.group.start()
    held = [tokens.claim(group) for group in [1, 2, 3, 1, 2, 3]]
    assert not played.group.claim()
    assert not played.group.look_for_rows()
    for token in held[:2]:
        tokens.finish(token)
    buffer, _ = tokens.take()
    assert tokens.release(buffer) == [0]
    assert played.group.look_for_rows()
    assert played.group.token in held[:2]


def test_errors_name_the_lane_and_the_step():
    lanes = Script()
    lanes.reward = np.inf
    played = Played(lanes)
    played.start()
    for _ in range(4):
        played.step()
    message = r"reward inf \(step 0 of the row\); rewards must be finite: correct or clip"
    with pytest.raises(EnvError, match=message):
        played.group.finish()
    assert played.shared.counters.rollout[0]["lane"] == 0


def test_previous_inputs_are_those_of_the_step_before():
    played = Played(previous=True)
    played.start()
    played.row()["actions"][:] = [[1, 2, 3, 4], [5, 6, 7, 8]]
    for _ in range(4):
        played.step()
    row = played.row()
    assert row["previous_actions"].tolist() == [[0, 1, 2, 3, 0], [0, 5, 6, 7, 8]]
    assert row["previous_rewards"].tolist() == [[0, 1, 1, 1, 0], [0, 10, 10, 10, 10]]


@pytest.mark.parametrize("steps", [0, 2, 4])
def test_a_saved_group_goes_on_as_if_nothing_had_happened(steps):
    def play(played, count):
        found = []
        for _ in range(count):
            found += played.step()
            if played.group.step == 4:
                played.group.finish()
                played.group.claim()
        return found

    before, after = Played(), Played()
    before.start()
    play(before, steps)
    state = before.group.state_dict()
    assert set(state) == {
        *("episode_ids", "scores", "lengths", "token", "row", "step", "real_steps"),
        *("given_scores", "overlapping", "carry", "lanes"),
    }
    for name in before.shared.arena.layout.fields:
        after.shared.arena[name][...] = before.shared.arena[name]
    copied = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in state.items()}
    copied["carry"] = {k: v.copy() for k, v in state["carry"].items()}
    after.group.load_state_dict(copied)
    assert after.lanes.shown == [[steps, steps]] * 2  # what the environments must come back to
    assert play(after, 9) == play(before, 9)
    for name, array in before.shared.store.arrays.items():
        np.testing.assert_array_equal(after.shared.store[name], array, err_msg=name)
