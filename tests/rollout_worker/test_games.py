from __future__ import annotations

import numpy as np
import pytest

from sampler.rollout_worker.games import Game, GameScores
from sampler.rollout_worker.lanes import StepResult


class Play:
    """Two lanes, whose rewards are added `block` steps at a time."""

    def __init__(self, block):
        self.games, self.block = GameScores(2), block
        self.rewards = np.zeros((2, 0), np.float32)
        self.ages = np.zeros(2, np.int64)

    def step(self, *rewards, ended=(), resets=(), reset_games=()):
        """`ended`: lanes, and whether their game is over."""
        result = StepResult(list(rewards))
        result.ended = [(lane, True, False, game_over) for lane, game_over in ended]
        result.resets, result.reset_games = list(resets), list(reset_games)
        self.ages += 1
        self.ages[result.resets] = 0
        new = np.array(rewards, np.float32)[:, None]
        self.rewards = np.concatenate((self.rewards, new), axis=1)
        games = self.games.finished(result, self.ages, self.rewards)
        if self.rewards.shape[1] == self.block:
            self.games.add(self.rewards)
            self.rewards = np.zeros((2, 0), np.float32)
        return games


@pytest.fixture(params=[1, 2, 5, 100], ids="blocks of {}".format)
def play(request):
    return Play(request.param)


def test_a_game_of_one_episode(play):
    assert play.step(1.0, 10.0) == []
    assert play.step(2.0, 20.0, ended=[(0, True)]) == [Game(0, 3.0, 2)]
    assert play.step(0.0, 30.0, resets=[0]) == []
    assert play.step(4.0, 40.0, ended=[(0, True), (1, True)]) == [
        Game(0, 4.0, 1),
        Game(1, 100.0, 4),
    ]


def test_a_game_of_several_episodes(play):
    assert play.step(1.0, 0.0, ended=[(0, False)]) == []
    assert play.step(0.0, 0.0, resets=[0]) == []
    assert play.step(2.0, 0.0) == []
    assert play.step(4.0, 0.0, ended=[(0, False)]) == []
    assert play.step(0.0, 0.0, resets=[0]) == []
    assert play.step(8.0, 0.0, ended=[(0, True)]) == [Game(0, 15.0, 4)]


def test_what_a_reset_scores_belongs_to_the_game_and_may_end_it(play):
    play.step(1.0, 1.0, ended=[(0, False), (1, False)])
    reset_games = [(0, 5.0, False), (1, 7.0, True)]
    assert play.step(0.0, 0.0, resets=[0, 1], reset_games=reset_games) == [Game(1, 8.0, 1)]
    ended = [(0, True), (1, True)]
    assert play.step(2.0, 2.0, ended=ended) == [Game(0, 8.0, 2), Game(1, 2.0, 1)]


def test_a_score_is_the_float64_sum_of_float32_rewards(play):
    for _ in range(99):
        play.step(0.1, 2.0**24)
    games = play.step(0.1, 1.0, ended=[(0, True), (1, True)])
    assert games[0].score == pytest.approx(100 * float(np.float32(0.1)), rel=1e-14)
    assert games[1].score == 99 * 2.0**24 + 1  # float32 would lose the 1
