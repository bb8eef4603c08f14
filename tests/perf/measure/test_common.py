"""Medians, interleaving, and what is made of two snapshots of the statistics."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from perf.measure.common import (
    Summary,
    interleave,
    mean_shares,
    rates,
    ratio,
    stage_shares,
    table,
    write_json,
)


def snapshot(time, steps, seconds, batches, observations):
    """Statistics of one rollout and one policy worker, as Sampler.stats() gives them."""
    return {
        "time": time,
        "steps": steps,
        "frames": 4 * steps,
        "rollout": [{"seconds": dict(seconds)}],
        "policy": [
            {"batches": batches, "observations": observations, "seconds": {"wait": time / 2}}
        ],
        "learner": {"batches": batches // 2},
    }


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


def test_rates_are_differences_over_time():
    before = snapshot(10.0, 100, {"step": 1.0, "wait": 2.0}, 20, 200)
    after = snapshot(14.0, 500, {"step": 3.0, "wait": 3.0}, 30, 320)
    assert rates(before, after) == {
        "sps": 100.0,
        "fps": 400.0,
        "policy_batch_mean": 12.0,
        "learner_batches": 5 / 4,
    }


def test_rates_without_inference_have_batches_of_nothing():
    still = snapshot(10.0, 100, {"step": 1.0}, 20, 200)
    assert rates(still, {**still, "time": 11.0})["policy_batch_mean"] == 0.0


def test_stage_shares_are_means_over_processes_and_add_up_to_one():
    def stats(time, *steps):
        return {
            "time": time,
            "rollout": [{"seconds": {"step": s, "wait": 0.5 * s}} for s in steps],
            "policy": [],
        }

    shares = stage_shares(stats(100.0, 1.0, 2.0), stats(110.0, 5.0, 4.0))
    # 4 and 2 seconds of stepping, half as many of waiting, of 2 processes in 10 seconds.
    assert shares == {"rollout": pytest.approx({"step": 0.3, "wait": 0.15, "other": 0.55})}


def test_a_wait_that_began_before_the_window_leaves_no_negative_rest():
    before = {"time": 0.0, "rollout": [{"seconds": {"wait": 0.0}}], "policy": []}
    after = {"time": 1.0, "rollout": [{"seconds": {"wait": 1.1}}], "policy": []}
    assert stage_shares(before, after)["rollout"]["other"] == 0.0


def test_mean_shares():
    shares = [{"policy": {"wait": 0.2, "other": 0.8}}, {"policy": {"wait": 0.4, "other": 0.6}}]
    assert mean_shares(shares) == {"policy": pytest.approx({"wait": 0.3, "other": 0.7})}


def test_table_aligns_names_left_and_numbers_right(capsys):
    table("Title", ("", "steps/s"), [("fast", "1,000"), ("a longer name", "7")])
    assert capsys.readouterr().out.splitlines() == [
        "",
        "Title",
        "               steps/s",
        "-------------  -------",
        "fast             1,000",
        "a longer name        7",
    ]


def test_json_names_the_command(tmp_path, monkeypatch):
    spec = SimpleNamespace(name="perf.peers.__main__")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=spec))
    monkeypatch.setattr("sys.argv", ["/somewhere/perf/peers/__main__.py", "--seconds", "2"])
    path = tmp_path / "folder" / "report.json"
    write_json(path, {"fps": 1.5})
    assert json.loads(path.read_text()) == {
        "command": "python -m perf.peers --seconds 2",
        "fps": 1.5,
    }
    write_json(None, {"fps": 1.5})
