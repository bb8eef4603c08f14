"""Hindsight experience replay (Andrychowicz et al. 2017): goals that were reached later replace the
desired ones.

Relabelling happens when transitions are sampled, inside the stored rows: if a row holds only a part
of an episode, goals come from that part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from sampler.checks import check_choice, check_numbers

RewardFunction = Callable[[np.ndarray, np.ndarray, Any], np.ndarray]
"""(achieved goals [n, ...], desired goals [n, ...], info) -> [n], as gymnasium's goal environments
have it: `compute_reward` and `compute_terminated`."""


class Segments(NamedTuple):
    """The part of its episode that a row holds around each step, int64 [B, T].

    first: the first observation. last: the last one, which may be the episode's final observation;
    both index the row's T+1 observations.
    """

    first: np.ndarray
    last: np.ndarray


def episode_segments(cuts: np.ndarray, mask: np.ndarray) -> Segments:
    """Where the episodes inside rows begin and end; `cuts` and `mask` are bool [B, T].

    A masked step is a segment of its own.
    """
    steps = cuts.shape[1]
    # Whether step t + 1 no longer continues the segment of step t.
    breaks = cuts | ~mask
    breaks[:, :-1] |= ~mask[:, 1:]
    breaks[:, -1] = True
    at = np.arange(steps)
    stops = np.where(breaks, at, steps)
    last = np.minimum.accumulate(stops[:, ::-1], axis=1)[:, ::-1] + 1
    starts = np.zeros(cuts.shape, np.int64)
    starts[:, 1:] = np.where(breaks[:, :-1], at[1:], 0)
    return Segments(np.maximum.accumulate(starts, axis=1), last)


@dataclass(frozen=True)
class Hindsight:
    """Which transitions get which goals, and their rewards with these.

    compute_reward: the environment's. compute_terminated: the environment's, if reaching a goal
    ends an episode; None: keep the stored ends. goals: relabelled transitions for each one that
    keeps its own goal (k).
    """

    compute_reward: RewardFunction
    compute_terminated: RewardFunction | None = None
    strategy: Literal["future", "final", "episode"] = "future"
    goals: int = 4

    def __post_init__(self) -> None:
        check_choice(self, "strategy", ("future", "final", "episode"))
        check_numbers(self, "goals", whole=True, least=0)

    @property
    def ratio(self) -> float:
        """The share of transitions that are relabelled, k / (k + 1)."""
        return self.goals / (self.goals + 1)

    def choose(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Positions of the round(n ratio) transitions of a batch of n to relabel, int64."""
        return generator.permutation(n)[: round(n * self.ratio)]

    def goal_steps(
        self, steps: np.ndarray, first: np.ndarray, last: np.ndarray, generator: np.random.Generator
    ) -> np.ndarray:
        """The observation whose achieved goal each transition gets, int64 [n].

        steps: where the transitions start; first, last: their segments; all [n]. "future": any
        observation after the step, "final": the segment's last, "episode": any but its first.
        """
        if self.strategy == "final":
            return last
        begin = steps if self.strategy == "future" else first
        return begin + 1 + generator.integers(last - begin)

    def rewards(self, achieved: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """Rewards [n, k] for `achieved` goals [n, k, ...] after k steps, for `goals` [n, ...]."""
        return self._evaluate(self.compute_reward, achieved, goals).astype(np.float32)

    def terminated(self, achieved: np.ndarray, goals: np.ndarray) -> np.ndarray | None:
        """Whether `achieved` [n, k, ...] ends an episode with the desired `goals`, bool [n, k];
        None: as stored."""
        if self.compute_terminated is None:
            return None
        return self._evaluate(self.compute_terminated, achieved, goals).astype(bool)

    @staticmethod
    def _evaluate(function: RewardFunction, achieved: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """Calls the function once for all, with goals as rows of one batch."""
        n, k = achieved.shape[:2]
        result = function(
            achieved.reshape(n * k, *achieved.shape[2:]), np.repeat(goals, k, axis=0), {}
        )
        return np.asarray(result).reshape(n, k)
