"""From environments' infos to metrics.csv and TensorBoard, through the command."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from helpers.runs import only_run, rows_of, words
from tensorboardX.proto.event_pb2 import Event

from cli import train
from cli.info_metrics import InfoMetrics
from sampler.shm.info_figures import BINS, bin_of

ENVIRONMENT = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Reporting(CartPoleEnv):
    def reset(self, **kwargs):
        self.at = 0
        return super().reset(**kwargs)

    def step(self, action):
        self.at += 1
        return *super().step(action)[:4], {"height": self.at, "one": 1.0}

gym.register("Reporting-v0", Reporting, max_episode_steps=30)
"""


def test_the_command_writes_what_infos_hold(tmp_path, monkeypatch, capsys):
    (tmp_path / "reporting_env.py").write_text(ENVIRONMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sizes = "--workers 1 --envs-per-worker 4 --rollout 8 --batch 4 --serial --total-steps 1000"
    keys = "--info-keys height:last height:histogram one lost"
    flags = f"--env reporting_env:Reporting-v0 {sizes} {keys} --run-dir runs"
    assert train.run(words(flags)) == 0
    run = only_run(tmp_path / "runs")
    row = rows_of(run)[-1]
    assert float(row["infos/one"]) == 1.0
    last, length = float(row["infos/height_last"]), float(row["charts/episodic_length"])
    assert last == pytest.approx(length, rel=1e-5)
    assert 1 <= float(row["infos/height_p10"]) <= float(row["infos/height_p90"]) <= 30
    assert "no info of this environment has held 'lost'" in capsys.readouterr().err
    histograms = [
        value
        for file in run.glob("events.*")
        for event in events(file)
        for value in event.summary.value
        if value.tag == "infos/height" and value.HasField("histo")
    ]
    assert histograms
    assert sum(histograms[-1].histo.bucket) == histograms[-1].histo.num > 0


def events(path):
    data = path.read_bytes()
    while data:
        size = int.from_bytes(data[:8], "little")
        yield Event.FromString(data[12 : 12 + size])
        data = data[16 + size :]


def test_rows_hold_what_came_since_the_one_before():
    def stats(*values):
        bins = np.zeros(BINS, np.int64)
        for value in values:
            bins[bin_of(value)] += 1
        figures = {"count": len(values), "sum": sum(values), "low": 1.0, "high": 9.0}
        found = figures | {"histogram": bins}
        return {"infos": dict.fromkeys(("a:mean", "a:last", "b:histogram"), found), "episodes": 1}

    metrics = InfoMetrics(stats(1.0))
    numbers, histograms = metrics.take(stats(1.0, 4.0, 8.0))
    assert numbers.pop("infos/a") == numbers.pop("infos/a_last") == 6.0
    assert list(numbers) == ["infos/b_p10", "infos/b_p50", "infos/b_p90"]
    assert histograms["infos/b"].counts.sum() == 2
    assert metrics.take(stats(1.0, 4.0, 8.0)) == ({}, {})
    assert list(metrics.warnings(stats(1.0))) == []
    lines = list(metrics.warnings(stats()))
    assert len(lines) == 3
    assert list(metrics.warnings(stats())) == []
