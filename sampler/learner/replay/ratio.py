"""Holding learner and sampler to a set ratio of learned to sampled steps."""

from __future__ import annotations

from collections.abc import Mapping


class ReplayRatio:
    """Says how many updates are due, so that learned steps = ratio x sampled steps.

    It works in both directions. A learner that is faster than the sampler finds nothing due and
    waits for the next batch. A sampler that is faster is held back: the learner makes all updates
    that are due before it takes another batch, and meanwhile the sampler's buffers fill up.

    Steps that were sampled before learning began are not counted, as they would cause a burst of
    updates on very little data.
    """

    def __init__(self, ratio: float) -> None:
        """`ratio`: steps learned for each step sampled."""
        self.target = ratio
        self.sampled = 0
        """Steps sampled since learning began."""
        self.learned = 0
        """Steps learned since then, each counted as often as it was replayed."""

    def due(self, cost: int) -> int:
        """Updates of `cost` steps each that may be made now."""
        return max(int((self.target * self.sampled - self.learned) / cost), 0)

    @property
    def value(self) -> float:
        """The ratio so far; 0 before anything was sampled."""
        return self.learned / self.sampled if self.sampled else 0.0

    def state_dict(self) -> dict[str, int]:
        return {"sampled": self.sampled, "learned": self.learned}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.sampled, self.learned = state["sampled"], state["learned"]
