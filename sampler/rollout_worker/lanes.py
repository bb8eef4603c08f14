"""The environments of one group, stepped together: what both kinds of lanes have in common.

After an episode ends, the next step of that lane ignores its action and resets (Gymnasium's
next-step autoreset), so final observations stay in the sequence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from sampler.errors import RAISED, EnvError, one_line
from sampler.spaces import flatten, unflatten

logger = logging.getLogger("fastrl")


@dataclass
class StepResult:
    """What happened in one step of a group. The same object is used again for every step."""

    rewards: list[float]
    ended: list[tuple[int, bool, bool, bool]] = field(default_factory=list)
    """Lanes whose episode ended: (lane, terminated, truncated, whether the whole game is over)."""
    resets: list[int] = field(default_factory=list)
    """Lanes that were reset instead of stepped."""
    reset_games: list[tuple[int, float, bool]] = field(default_factory=list)
    """Resets in which a game that goes on after a lost life was played: (lane, score made, whether
    the game ended and a new one began)."""


class Lanes(Protocol):
    """A group of environments. `observations` and `action_mask` arguments are arrays
    [lanes, T+1, ...]; `at` is the entry to write (for frames: of the newest frame)."""

    result: StepResult

    def reset(self, observations: list[np.ndarray], at: int, mask: np.ndarray | None) -> None: ...

    def step(
        self,
        actions: list[np.ndarray],
        observations: list[np.ndarray],
        at: int,
        mask: np.ndarray | None,
        mask_at: int,
    ) -> StepResult: ...

    def close(self) -> None: ...


def unpack(returned: Any, count: int, method: str) -> Any:
    if isinstance(returned, tuple) and len(returned) == count:
        return returned
    kind = f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
    raise EnvError(
        f"{method}() returned {kind}, not a tuple of {count}; "
        "follow the Gymnasium API (obs, info) and (obs, reward, terminated, truncated, info)"
    )


def for_environment(
    space: gym.Space, convert: Callable[[Any], Any] | None, actions: list[np.ndarray]
) -> list[np.ndarray]:
    """Leaves of the actions [lanes, ...] as the environment takes them: copies, within bounds."""
    copies = [leaf.copy() for leaf in actions]
    if convert is None:
        return copies
    return flatten(space, convert(unflatten(space, copies)))


def close(env: gym.Env | gym.vector.VectorEnv) -> None:
    """Close an environment; one that fails in that has served its purpose, and is only reported."""
    try:
        env.close()
    except RAISED as error:
        logger.warning("closing an environment failed: %s", one_line(error))
