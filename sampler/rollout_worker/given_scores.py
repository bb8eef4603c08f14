"""Scores of games by the environment's own account, where wrappers change its rewards."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import isclose
from typing import Any

import numpy as np

logger = logging.getLogger("fastrl")


class GivenScores:
    """Sums of raw rewards that Gymnasium's RecordEpisodeStatistics counted below such wrappers.

    It counts episodes. A game of several is taken from it if it has counted all of them; all other
    scores are sums of the rewards that came out of the outermost wrapper. Where both are known and
    differ, one warning says which is taken.
    """

    def __init__(self, lanes: int):
        self._scores = np.zeros(lanes)  # of the games in progress
        self._steps = np.zeros(lanes, np.int64)  # in those of their episodes that were counted
        self._said = False

    def add_episode(self, lane: int, steps: int, score: float | None) -> None:
        """An episode of `steps` steps has ended; `score`: by the environment, if it gave one."""
        if score is not None:
            self._scores[lane] += score
            self._steps[lane] += steps

    def add_reset(self, lane: int, score: float) -> None:
        """A reset of the game in progress has scored."""
        self._scores[lane] += score

    def end_game(self, lane: int, score: float, length: int) -> float:
        """The score to report of a game of `length` steps whose rewards add up to `score`."""
        given, counted = float(self._scores[lane]), int(self._steps[lane])
        self._scores[lane], self._steps[lane] = 0.0, 0
        if not counted or counted != length:
            return score
        if not (self._said or isclose(given, score, rel_tol=1e-4, abs_tol=1e-4)):
            self._said = True
            logger.warning(
                'scores are those that the environment gives in info["episode"]: wrappers change '
                "its rewards (the first such game scored %g; its changed rewards add up to %g)",
                given,
                score,
            )
        return given

    def state_dict(self) -> dict[str, Any]:
        """Of the games in progress; arrays are not copied."""
        return {"scores": self._scores, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._scores[:], self._steps[:] = state["scores"], state["steps"]


def given_score(episode: Any) -> float | None:
    """The score in what Gymnasium's RecordEpisodeStatistics puts into info["episode"]."""
    return float(episode["r"]) if isinstance(episode, dict) and "r" in episode else None
