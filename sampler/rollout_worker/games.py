"""Scores and lengths of whole games, which may be longer than episodes and than rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sampler.rollout_worker.given_scores import GivenScores
from sampler.rollout_worker.lanes import StepResult


class Game(NamedTuple):
    """A whole game that is over: its lane within the group, raw score, and length in steps."""

    lane: int
    score: float
    length: int


class GameScores:
    """The games that a group of lanes is playing, from what happens in its steps.

    A score is what the environment itself gives (`GivenScores`), or else the sum, in float64, of
    the game's rewards as rows store them (float32) and of what its resets scored. Rewards may be
    added in blocks of many steps, which is cheaper: those that have not been added yet are given
    where a game ends.
    """

    def __init__(self, lanes: int):
        self.scores = np.zeros(lanes)  # of the games in progress, as far as they were added
        self.lengths = np.zeros(lanes, np.int64)  # steps in the episodes of theirs that have ended
        self._given = GivenScores(lanes)

    def add(self, rewards: np.ndarray) -> None:
        """Add the rewards of one or more steps, float32 [lanes, steps]."""
        self.scores += rewards.sum(axis=1, dtype=np.float64)

    def finished(self, result: StepResult, ages: np.ndarray, recent: np.ndarray) -> list[Game]:
        """The games that were over after a step; the lanes' next ones begin at 0.

        ages: int [lanes], steps that the lanes' present episodes have had. recent: float32
        [lanes, steps], the rewards not added yet, this step's among them; they are to be added
        later.
        """
        games = []
        for lane, reward, game_over in result.reset_games:
            games += self._after_reset(lane, reward, game_over, recent)
        for lane, _, _, game_over in result.ended:
            steps = int(ages[lane])
            self.lengths[lane] += steps
            self._given.add_episode(lane, steps, result.given_scores.get(lane))
            if game_over:
                games.append(self._finish(lane, recent))
        for lane, reward, game_over in result.began:
            games += self._after_reset(lane, reward, game_over, recent)
        return games

    def _after_reset(
        self, lane: int, reward: float, game_over: bool, recent: np.ndarray
    ) -> list[Game]:
        self.scores[lane] += reward
        self._given.add_reset(lane, reward)
        return [self._finish(lane, recent)] if game_over else []

    def _finish(self, lane: int, recent: np.ndarray) -> Game:
        pending = float(recent[lane].sum(dtype=np.float64))
        score, length = float(self.scores[lane]) + pending, int(self.lengths[lane])
        game = Game(lane, self._given.end_game(lane, score, length), length)
        self.scores[lane] = -pending  # adding them later leaves only what comes after
        self.lengths[lane] = 0
        return game

    def state_dict(self) -> dict[str, Any]:
        """Of the games in progress, except rewards not added yet; arrays are not copied."""
        return {
            "scores": self.scores,
            "lengths": self.lengths,
            "given_scores": self._given.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.scores[:], self.lengths[:] = state["scores"], state["lengths"]
        if "given_scores" in state:  # not in older states
            self._given.load_state_dict(state["given_scores"])
