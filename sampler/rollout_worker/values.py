"""Checking the values that environments return against their spaces."""

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
    """A value that must not be learned from: where it is, what it is, and what to do about it."""

    lane: int
    step: int
    what: str
    remedy: str


class ValueCheck:
    """Looks for values outside the spaces; one object serves all lanes of a process.

    NaN, infinite rewards and discrete values that do not exist are faults. A finite float outside
    its Box is not, since published environments return such values, but the first one gives a
    warning.
    """

    def __init__(self, leaves: tuple[Leaf, ...], environment: str):
        """`leaves`: those of the observation space; `environment`: its name for the warning."""
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
    """`values`, with every finite one clipped to the leaf's Box."""
    space = leaf.space
    assert isinstance(space, gym.spaces.Box)
    return np.where(np.isfinite(values), np.clip(values, space.low, space.high), values)


def _describe(leaf: Leaf, values: np.ndarray, position: tuple[int, ...]) -> str:
    return (
        f"{leaf.name} holds {values[position]} at index {position[2:]}, "
        f"outside its space {leaf.space}"
    )
