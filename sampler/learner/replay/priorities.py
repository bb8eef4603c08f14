"""Prioritised sampling, and the weights that correct for it (Schaul et al. 2016).

An item is anything with an index: a stored sequence, or one transition in it. Items are chosen with

    P(i) = (1 - uniform) p_i^alpha / sum_k p_k^alpha + uniform / N

and weighted by (N P(i))^-beta, N being the number of items that are stored now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from sampler.errors import ConfigError
from sampler.learner.replay.sum_tree import MinTree, SumTree

Normalize = Literal["batch", "all", "none"]

FLOOR = 1e-6
"""The least priority of a valid item, so that an error of 0 does not bury it forever."""


class Priorities:
    """Priorities of up to `capacity` items, of which those that are valid can be sampled."""

    def __init__(
        self,
        capacity: int,
        alpha: float = 0.6,
        beta: float = 0.4,
        uniform: float = 0.0,
        normalize: Normalize = "batch",
    ) -> None:
        """`alpha=0`: every valid item alike. `normalize`: importance weights are divided by the
        largest of the batch, by the largest of all that is stored, or not at all."""
        if not (alpha >= 0 and beta >= 0 and 0 <= uniform <= 1):
            raise ConfigError(
                f"alpha={alpha} and beta={beta} must be at least 0, uniform={uniform} within 0..1"
            )
        self.tree = SumTree(capacity)
        self.alpha, self.beta, self.uniform = alpha, beta, uniform
        self.normalize = normalize
        self.count = 0
        """Valid items (N)."""
        self._used = 0  # items at this index and later were never added
        self._least = MinTree(capacity) if normalize == "all" else None

    def add(self, index: np.ndarray, priorities: Any = None, valid: Any = True) -> None:
        """Puts new items in the place of old ones.

        index: int64 [n], all different. priorities: [n]; None: the largest seen so far, at least 1.
        valid: bool [n], False for items that must never be sampled.
        """
        if priorities is None:
            leaves = np.full(index.shape, self.tree.max_recorded)
        else:
            leaves = self._leaves(priorities)
        leaves = np.where(valid, leaves, 0.0)
        self.count += int((leaves > 0).sum()) - int((self.tree.get(index) > 0).sum())
        self._used = max(self._used, int(index.max(initial=-1)) + 1)
        self._set(index, leaves)

    def update(self, index: np.ndarray, priorities: Any) -> None:
        """Changes the priorities [n] of valid items; the last of repeated ones counts."""
        self._set(index, self._leaves(priorities))

    def sample(
        self,
        n: int,
        generator: np.random.Generator,
        beta: float | None = None,
        stratified: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """n items with replacement: indices int64 [n] and importance weights float32 [n].

        Raises ValueError where nothing valid is stored.
        """
        index = self.tree.sample(n, generator, stratified)
        if self.uniform > 0:
            at_random = generator.random(n) < self.uniform
            index[at_random] = self._uniform(int(at_random.sum()), generator)
        return index, self.weights(index, beta)

    def probabilities(self, index: np.ndarray) -> np.ndarray:
        """P(i) of valid items, float64 [n]."""
        return self._probabilities(self.tree.get(index))

    def weights(self, index: np.ndarray, beta: float | None = None) -> np.ndarray:
        """Importance weights, float32 [n]; at most 1 if normalized. `beta=None`: as constructed."""
        beta = self.beta if beta is None else beta
        probabilities = self.probabilities(index)
        if self.normalize == "none":
            reference = 1 / self.count
        elif self._least is None:
            reference = probabilities.min(initial=1.0)  # the least likely has the largest weight
        else:
            reference = self._probabilities(self._least.min())
        return ((probabilities / reference) ** -beta).astype(np.float32)

    def _probabilities(self, leaves: Any) -> Any:
        return (1 - self.uniform) * leaves / self.tree.total + self.uniform / self.count

    def _leaves(self, priorities: Any) -> np.ndarray:
        return np.maximum(np.asarray(priorities, np.float64), FLOOR) ** self.alpha

    def _set(self, index: np.ndarray, leaves: np.ndarray) -> None:
        self.tree.set(index, leaves)
        if self._least is not None:
            self._least.set(index, np.where(leaves > 0, leaves, np.inf))

    def _uniform(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """n valid items, all equally likely: draws that hit an invalid one are repeated."""
        index = generator.integers(self._used, size=n)
        while (invalid := self.tree.get(index) == 0).any():
            index[invalid] = generator.integers(self._used, size=int(invalid.sum()))
        return index

    def state_dict(self) -> dict[str, np.ndarray]:
        """The complete state, as arrays."""
        return {
            "priorities": self.tree.values[: self._used],
            "max_priority": np.array(self.tree.max_recorded),
        }

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from the `state_dict()` of priorities with the same capacity and alpha."""
        saved = state["priorities"]
        leaves = np.zeros(self.tree.capacity)
        leaves[: len(saved)] = saved
        self._used = len(saved)
        self.count = int((leaves > 0).sum())
        self._set(np.arange(len(leaves)), leaves)
        self.tree.max_recorded = float(state["max_priority"])
