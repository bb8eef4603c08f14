"""Measuring in rounds: contestants in turn, medians with their range, ratios round by round.

A rate is a number of things per second. Rates are compared within one interleaved run: the
contestants are measured in turn, round after round, and a ratio is the median of the rounds'
ratios, because a machine's speed drifts more between minutes than two programs differ.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

WARM_UP = 1.0  # seconds of each turn that are not measured

Measure = Callable[[float], float]
"""Takes the seconds to measure for, returns a rate."""


@dataclass(frozen=True)
class Summary:
    """The median of repeated measurements, with the lowest and the highest of them."""

    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> Summary:
        """Raises ValueError for no values."""
        if not values:
            raise ValueError("no measurements to summarise")
        return Summary(statistics.median(values), min(values), max(values), len(values))

    def text(self, pattern: str = "{:,.0f}") -> str:
        """The median and, where there are several measurements, the range."""
        median = pattern.format(self.median)
        if self.count == 1:
            return median
        return f"{median} ({pattern.format(self.low)} to {pattern.format(self.high)})"


def interleave(measures: Mapping[str, Measure], rounds: int, seconds: float):
    """Measure each in turn, `rounds` times, every other round in reverse: {name: [rate, ...]}.

    The reversal takes a steady drift of the machine out of the ratios.
    """
    rates: dict[str, list[float]] = {name: [] for name in measures}
    for turn in range(rounds):
        names = list(measures)
        for name in names if turn % 2 == 0 else reversed(names):
            rates[name].append(measures[name](seconds))
    return rates


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Summary:
    """Pair by pair: the summary of numerator / denominator of the same round."""
    return Summary.of([a / b for a, b in zip(numerators, denominators, strict=True)])
