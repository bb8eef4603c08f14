"""Scores of games as the environment itself counts them, below wrappers that change rewards."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import isclose
from typing import Any

import numpy as np

logger = logging.getLogger("fastrl")


class GivenScores:
    """Sums of raw rewards that Gymnasium's RecordEpisodeStatistics counted below such wrappers.

    It counts episodes. Its score is used for a game if it has counted all episodes of the game; all
    other scores are sums of the rewards that came out of the outermost wrapper. If both are known
    and differ, one warning says which is used.
    """

    def __init__(self, lanes: int):
        self._scores = np.zeros(lanes)  # of the games in progress
        self._steps = np.zeros(lanes, np.int64)  # in those of their episodes that were counted
        self._said = False

    def add_episode(self, lane: int, steps: int, score: float | None) -> None:
        """An episode of `steps` steps has ended; `score`: the environment's, if it gave one."""
        if score is not None:
            self._scores[lane] += score
            self._steps[lane] += steps

    def add_reset(self, lane: int, score: float) -> None:
        """A reset has added to the score of the game in progress."""
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
        """The games in progress; arrays are not copied."""
        return {"scores": self._scores, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict()`."""
        self._scores[:], self._steps[:] = state["scores"], state["steps"]


def given_score(episode: Any) -> float | None:
    """The score in info["episode"], where Gymnasium's RecordEpisodeStatistics puts it."""
    return float(episode["r"]) if isinstance(episode, dict) and "r" in episode else None
