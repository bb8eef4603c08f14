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
    """Scores and lengths of the games that a group of lanes is playing, kept step by step.

    A score is the one that the environment itself gives (`GivenScores`), or else the float64 sum of
    the game's rewards as rows store them (float32) and of the rewards of its resets. Rewards may be
    added in blocks of many steps, which is cheaper; those not added yet are passed when a game
    ends.
    """

    def __init__(self, lanes: int):
        self.scores = np.zeros(lanes)  # of the games in progress, as far as added
        self.lengths = np.zeros(lanes, np.int64)  # steps in the episodes of theirs that have ended
        self._given = GivenScores(lanes)

    def add(self, rewards: np.ndarray) -> None:
        """Add the rewards of one or more steps, float32 [lanes, steps]."""
        self.scores += rewards.sum(axis=1, dtype=np.float64)

    def finished(self, result: StepResult, ages: np.ndarray, recent: np.ndarray) -> list[Game]:
        """The games that ended in a step; the next games of these lanes begin at 0.

        ages: int [lanes], steps since the lanes' present episodes began. recent: float32 [lanes,
        steps], the rewards not added yet, including this step's; the caller adds them later.
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
        self.scores[lane] = -pending  # so that adding them later leaves only the new game's rewards
        self.lengths[lane] = 0
        return game

    def state_dict(self) -> dict[str, Any]:
        """The games in progress, without rewards not added yet; arrays are not copied."""
        return {
            "scores": self.scores,
            "lengths": self.lengths,
            "given_scores": self._given.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict()`."""
        self.scores[:], self.lengths[:] = state["scores"], state["lengths"]
        if "given_scores" in state:  # states of earlier releases have none
            self._given.load_state_dict(state["given_scores"])
