"""The environments of one group, stepped together: the interface of both kinds of lanes.

L counts the lanes of the group. Observations, and action masks [A] where the environment gives
them, are written straight into the caller's arrays, one array for each leaf of the space.

After an episode ends, the next step of that lane ignores its action and resets (Gymnasium's
next-step autoreset), so final observations stay in the sequence.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from sampler.errors import RAISED, EnvError, one_line
from sampler.rollout_worker.info_reader import InfoReader
from sampler.spaces import flatten, unflatten

logger = logging.getLogger("fastrl")


@dataclass
class StepResult:
    """What happened in one step of a group. The same object is used again for every step.

    A lane is its index within the group, 0 to L-1.
    """

    rewards: list[float]
    """One for each lane; 0.0 for one that was reset."""
    ended: list[tuple[int, bool, bool, bool]] = field(default_factory=list)
    """Lanes whose episode ended: (lane, terminated, truncated, whether the whole game is over)."""
    resets: list[int] = field(default_factory=list)
    """Lanes that were reset instead of stepped."""
    reset_games: list[tuple[int, float, bool]] = field(default_factory=list)
    """Resets in which a game that goes on after a lost life was played: (lane, score made, whether
    the game ended and a new one began)."""
    began: list[tuple[int, float, bool]] = field(default_factory=list)
    """Lanes in `ended` whose next episode has begun in the same step, so that the observation
    written is its first and not the final one; otherwise as `reset_games`."""
    given_scores: dict[int, float] = field(default_factory=dict)
    """The scores of episodes in `ended` that the environment gave itself, by lane (Gymnasium's
    RecordEpisodeStatistics, which may be below wrappers that change rewards)."""

    @property
    def masked_steps(self) -> int:
        """Lanes whose step is not a transition to learn from: those that were reset, and those that
        were truncated with no final observation to bootstrap from."""
        if not self.began:
            return len(self.resets)
        terminated = {lane for lane, is_terminated, *_ in self.ended if is_terminated}
        return len(self.resets) + sum(lane not in terminated for lane, *_ in self.began)

    def clear(self) -> None:
        """Forget the last step's events."""
        if self.ended:
            self.ended.clear()
            self.began.clear()
            self.given_scores.clear()
        if self.resets or self.reset_games:
            self.resets.clear()
            self.reset_games.clear()


class Lanes(ABC):
    """A group of environments.

    Methods raise EnvError, or what the environment itself raises, after which the group cannot be
    used any more.
    """

    seeds: list[int]
    """One for each lane."""
    result: StepResult
    """What happened in the last step, or (`reset_games` alone) in `reset`."""
    infos: InfoReader | None = None
    """Reads the infos of steps; None where none are wanted."""

    @abstractmethod
    def reset(self, observations: list[np.ndarray], at: int, mask: np.ndarray | None) -> None:
        """Seed all environments and begin their first episodes.

        observations: an array [L, entries, ...] for each leaf of the space, in its dtype; `at` is
        the entry to write. mask: bool [L, entries, A], whose last entry is written; None where the
        environment gives no action masks.
        """

    @abstractmethod
    def step(
        self,
        actions: list[np.ndarray],
        observations: list[np.ndarray],
        at: int,
        mask: np.ndarray | None,
        mask_at: int,
    ) -> StepResult:
        """Step all environments once, or reset those whose episode ended in the step before.

        actions: an array [L, ...] for each leaf of the action space; those of lanes that are reset
        are ignored. observations: arrays [L, entries, ...]; `at` is the entry to write (of frames
        that are stacked: of the newest frame). mask: bool [L, entries, A] or None; `mask_at` is the
        entry to write. Returns `result`, which is valid until the next step.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all environments; errors are only logged."""


def unpack(returned: Any, count: int, method: str) -> Any:
    """`returned`, a tuple of `count`. Raises EnvError, naming `method`, if it is anything else, or
    if the info of a reset is not a dict."""
    if isinstance(returned, tuple) and len(returned) == count:
        if method == "reset" and not isinstance(returned[1], dict):
            kind = type(returned[1]).__name__
            raise EnvError(f"reset() returned info of type {kind}; return a dict")
        return returned
    kind = f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
    raise EnvError(
        f"{method}() returned {kind}, not a tuple of {count}; "
        "follow the Gymnasium API (obs, info) and (obs, reward, terminated, truncated, info)"
    )


def for_environment(
    space: gym.Space, convert: Callable[[Any], Any] | None, actions: list[np.ndarray]
) -> list[np.ndarray]:
    """Leaves of the actions [L, ...] as the environment takes them: copies, within bounds."""
    copies = [leaf.copy() for leaf in actions]
    if convert is None:
        return copies
    return flatten(space, convert(unflatten(space, copies)))


def close(env: gym.Env | gym.vector.VectorEnv) -> None:
    """Close an environment. Errors are only logged, since the environment is no longer needed."""
    try:
        env.close()
    except RAISED as error:
        logger.warning("closing an environment failed: %s", one_line(error))
