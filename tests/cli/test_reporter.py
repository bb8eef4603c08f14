from __future__ import annotations

import csv
import io
import time
from types import SimpleNamespace

import gymnasium as gym
import pytest

from cli.display import PlainDisplay
from cli.metrics_writer import MetricsWriter
from cli.reporter import Reporter
from sampler.config import SamplerConfig
from sampler.learner.trainer import Progress
from sampler.shm.mailbox import Episode


class FakeSampler:
    """Counters that say: 100 steps and 400 frames a second, all of it spent waiting for actions."""

    action_space = gym.spaces.Discrete(2)
    config = SamplerConfig("CartPole-v1")

    def __init__(self):
        self.clock = 1000.0
        self.idle = 0.0
        self.missed = 0

    def stats(self):
        elapsed = max(self.clock - 1000.0 - self.idle, 0.0)
        return {
            "time": self.clock,
            "steps": int(100 * elapsed),
            "frames": int(400 * elapsed),
            "episodes": 0,
            "episodes_missed": self.missed,
            "infos": {},
            "games_taken": {"games": 0, "score": 0.0, "length": 0},
            "rollout": [{"seconds": {"step": 0.1 * elapsed, "wait": 0.8 * elapsed}}],
            "policy": [
                {
                    "batches": int(10 * elapsed),
                    "observations": int(80 * elapsed),
                    "seconds": {"inference": 0.3 * elapsed, "write": 0.2 * elapsed},
                }
            ],
            "learner": {"wait_seconds": 0.25 * elapsed},
        }


@pytest.fixture
def setup(tmp_path, monkeypatch):
    sampler, stream = FakeSampler(), io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: sampler.clock)
    with MetricsWriter(tmp_path, tensorboard=False) as writer:
        setup = SimpleNamespace(
            sampler=sampler, stream=stream, filling=None, file=tmp_path / "metrics.csv"
        )
        setup.reporter = Reporter(
            sampler, PlainDisplay(stream), writer, 998.0, 5.0, None, lambda: setup.filling
        )
        yield setup


def batch(setup, seconds, steps, metrics, *scores):
    """One batch, learned `seconds` after the one before."""
    setup.sampler.clock += seconds
    progress = Progress(
        steps=steps,
        total_steps=2000,
        seconds=setup.sampler.clock - 1000.0,
        metrics=metrics,
        episodes=[Episode(0, score, 10, 40) for score in scores],
    )
    setup.reporter(progress)
    return progress


def rows(setup):
    with setup.file.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_holds_means_over_the_time_since_the_row_before(setup):
    batch(setup, 1, 100, {"losses/a": 1.0, "perf/policy_lag_max": 4.0}, 1.0)
    batch(setup, 2, 300, {"losses/a": 2.0, "perf/policy_lag_max": 9.0}, 3.0, 5.0)
    assert rows(setup) == []
    batch(setup, 3, 600, {"losses/a": 6.0, "perf/policy_lag_max": 2.0})
    (row,) = rows(setup)
    assert row["step"] == "600"
    expected = {
        "losses/a": 3.0,
        "perf/policy_lag_max": 9.0,  # the largest, not the mean
        "charts/episodic_return": 3.0,
        "charts/episodic_length": 10.0,
        "charts/SPS": 100.0,
        "perf/fps": 400.0,
        "perf/learner_wait": 0.25,
        "perf/batch_size": 8.0,
        "perf/inference_share": 0.8,
    }
    for tag, value in expected.items():
        assert float(row[tag]) == pytest.approx(value), tag
    batch(setup, 6, 1200, {"losses/a": 7.0})
    assert rows(setup)[1]["losses/a"] == "7"
    assert rows(setup)[1]["charts/episodic_return"] == ""


def test_games_that_are_in_no_list_are_logged(setup):
    batch(setup, 6, 600, {"losses/a": 1.0}, 1.0)
    setup.sampler.missed = 30
    batch(setup, 6, 1200, {"losses/a": 1.0}, 1.0)
    batch(setup, 6, 1800, {"losses/a": 1.0}, 1.0)
    assert [row["perf/episodes_missed"] for row in rows(setup)] == ["30", "0"]


def test_a_line_every_ten_seconds(setup):
    for second in range(1, 32):
        batch(setup, 1, 100 * second, {"perf/policy_lag_mean": 1.0}, float(second))
    lines = setup.stream.getvalue().splitlines()
    assert lines[0] == "first batch 3.0 s after the start of the command"
    assert len(lines) == 4
    assert lines[1].startswith(
        "step 1,100/2,000 (55%)  left 9s  FPS 400 frames/s  SPS 100 steps/s  return 6.0"
    )
    assert "bottleneck inference" in lines[1]


def test_the_summary_leaves_the_start_out(setup):
    batch(setup, 50, 5000, {})
    progress = batch(
        setup, 10, 6000, {"perf/policy_lag_mean": 1.5, "perf/policy_lag_max": 3.0}, 4.0, 6.0
    )
    text = "\n".join(setup.reporter.summary(progress))
    for part in (
        "trained 6,000 steps in 1m00s",
        "400 emulator frames per second",
        "100 agent steps per second",
        "5.00 (last 2 of 2 whole games)",
        "1.50 versions (max 3)",
        "inference (environment 10%, inference 80%, learner 0%, other 10% "
        "of the rollout workers' time)",
    ):
        assert part in text


def test_a_summary_without_games_or_lag(setup):
    progress = batch(setup, 1, 10, {})
    text = "\n".join(setup.reporter.summary(progress))
    assert "mean raw score -" in text
    assert "lag            -" in text


def test_what_goes_wrong_is_said_once(setup, capsys):
    for step in range(1, 200):
        batch(setup, 0.01, step, {"losses/entropy": 0.0})
    assert capsys.readouterr().err.count("warning: entropy is gone") == 1


def test_the_first_row_leaves_the_start_out(setup):
    setup.sampler.idle = 50.0  # seconds in which workers start and nothing is stepped
    batch(setup, 50, 100, {})
    batch(setup, 6, 700, {})
    (row,) = rows(setup)
    assert float(row["charts/SPS"]) == pytest.approx(100.0)


def test_time_left_is_steady_while_a_replay_is_filled_and_after(setup):
    setup.filling = 100, 2000
    batch(setup, 20, 1000, {})
    batch(setup, 11, 1100, {})
    assert "filling replay 100/2,000  left -" in setup.stream.getvalue()
    setup.filling = None
    batch(setup, 1, 1200, {})
    batch(setup, 10, 1400, {})
    assert "left 6s" in setup.stream.getvalue().splitlines()[-1]  # at 100 steps a second


def test_the_last_row_is_written_once(setup):
    batch(setup, 1, 100, {"losses/a": 1.0})
    last = batch(setup, 6, 700, {"losses/a": 3.0})
    setup.reporter.finish(last)
    assert [row["step"] for row in rows(setup)] == ["700"]
    last = batch(setup, 1, 800, {"losses/a": 5.0})
    setup.reporter.finish(last)
    assert [(row["step"], row["losses/a"]) for row in rows(setup)] == [
        ("700", "2"),
        ("800", "5"),
    ]


def test_much_communication_is_worth_a_word(setup):
    batch(setup, 1, 100, {})
    last = batch(setup, 6, 700, {})
    (row,) = rows(setup)
    assert row["perf/communication_share"] == "0.4"
    line = setup.reporter.summary(last)[-1]
    assert "40% of the time of choosing actions; less with --policy-workers 0" in line
