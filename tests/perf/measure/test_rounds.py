"""Medians, and contestants in turn."""

from __future__ import annotations

import pytest

from perf.measure.rounds import Summary, interleave, ratio


def test_summary_is_the_median_and_the_range():
    summary = Summary.of([5.0, 1.0, 3.0])
    assert summary == Summary(3.0, 1.0, 5.0, 3)
    assert summary.text() == "3 (1 to 5)"
    assert Summary.of([2.0]).text("{:.1f}") == "2.0"


def test_summary_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no measurements"):
        Summary.of([])


def test_interleaving_reverses_every_other_round():
    turns = []
    counts = iter(range(100))

    def measure(name):
        def run(seconds):
            turns.append((name, seconds))
            return float(next(counts))

        return run

    result = interleave({name: measure(name) for name in "abc"}, rounds=3, seconds=7.0)
    assert "".join(name for name, _ in turns) == "abccbaabc"
    assert {seconds for _, seconds in turns} == {7.0}
    assert result == {"a": [0.0, 5.0, 6.0], "b": [1.0, 4.0, 7.0], "c": [2.0, 3.0, 8.0]}


def test_interleaving_cancels_a_steady_drift():
    clock = iter(range(1, 100))
    result = interleave(
        {"a": lambda _: float(next(clock)), "b": lambda _: float(next(clock))}, 4, 1.0
    )
    assert sum(result["a"]) == sum(result["b"])


def test_ratio_pairs_rounds():
    # Each round's own ratio is 2, though the machine's speed varies tenfold between rounds.
    assert ratio([2.0, 20.0, 8.0], [1.0, 10.0, 4.0]) == Summary(2.0, 2.0, 2.0, 3)
    with pytest.raises(ValueError, match="zip"):
        ratio([1.0], [1.0, 2.0])
