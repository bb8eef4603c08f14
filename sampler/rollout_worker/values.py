"""What environments return, against what their spaces allow."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from sampler.rollout_worker.observations import outside
from sampler.spaces import Leaf

logger = logging.getLogger("fastrl")


@dataclass(frozen=True)
class Fault:
    """A value that nobody can learn from: where it is, what it is, and what to do."""

    lane: int
    step: int
    what: str
    remedy: str


class ValueCheck:
    """Looks for values outside the spaces; one for all the lanes of a process.

    What is not a number, an infinite reward and a discrete value that does not exist are faults.
    A finite float outside its Box is none, since published environments return such, but the first
    one is warned of.
    """

    def __init__(self, leaves: tuple[Leaf, ...], environment: str):
        """`leaves`: of the observation space; `environment`: its name in the warning."""
        self._leaves = leaves
        self._environment = environment
        self._warned = False

    def fault(
        self, rewards: np.ndarray, observations: list[np.ndarray], first_lane: int
    ) -> Fault | None:
        """The first fault in rewards [lanes, steps] and observations [lanes, steps, ...], by leaf.

        `first_lane`: the number of the first lane, for the warning.
        """
        if not np.isfinite(rewards).all():
            lane, step = np.argwhere(~np.isfinite(rewards))[0].tolist()
            remedy = "rewards must be finite: correct or clip them in the environment"
            return Fault(lane, step, f"reward {rewards[lane, step]}", remedy)
        for leaf, values in zip(self._leaves, observations, strict=True):
            position = outside(leaf, values)
            if position is not None and _is_float_box(leaf):
                self._warn(leaf, values, position, first_lane)
                position = outside(leaf, _finite_within(leaf, values))
            if position is not None:
                lane, step, *_ = position
                remedy = "correct the environment, or its observation_space"
                return Fault(lane, step, _describe(leaf, values, position), remedy)
        return None

    def _warn(
        self, leaf: Leaf, values: np.ndarray, position: tuple[int, ...], first_lane: int
    ) -> None:
        if self._warned or not np.isfinite(values[position]):
            return
        self._warned = True
        logger.warning(
            "env %s, lane %d: %s; such values are used as they are, and not warned of again: widen "
            "the observation_space if they are right",
            self._environment,
            first_lane + position[0],
            _describe(leaf, values, position),
        )


def _is_float_box(leaf: Leaf) -> bool:
    return isinstance(leaf.space, gym.spaces.Box) and leaf.dtype.kind == "f"


def _finite_within(leaf: Leaf, values: np.ndarray) -> np.ndarray:
    """`values` with every finite one brought within the leaf's Box."""
    space = leaf.space
    assert isinstance(space, gym.spaces.Box)
    return np.where(np.isfinite(values), np.clip(values, space.low, space.high), values)


def _describe(leaf: Leaf, values: np.ndarray, position: tuple[int, ...]) -> str:
    return (
        f"{leaf.name} holds {values[position]} at index {position[2:]}, "
        f"outside its space {leaf.space}"
    )
