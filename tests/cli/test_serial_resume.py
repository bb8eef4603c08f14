"""fastrl-train --serial: stopped and resumed, it ends in the checkpoint of a run in one go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.states import differences

from cli import train
from sampler.learner.checkpoint import CheckpointStore

ROOT = Path(__file__).parents[2]


def words(text):
    return text.split()


SMALL = words(
    "--env CartPole-v1 --serial --workers 1 --envs-per-worker 4 --rollout 8 --batch 4 --seed 2 "
    "--model.hidden 16 --no-tensorboard"
)


def run_in(folder, *arguments):
    """The command in this process."""
    return train.run([*arguments, "--run-dir", str(folder)])


def last_state(folder):
    """Of the only run in `folder`."""
    (run,) = (path for path in folder.iterdir() if not path.is_symlink())
    return CheckpointStore(run / "checkpoints").load_latest()[0]


def test_a_resumed_run_ends_as_one_in_one_go(tmp_path, capfd):
    constant = ["--learner.no-anneal-learning-rate"]  # else the rate depends on --total-steps
    assert run_in(tmp_path / "a", *SMALL, *constant, "--total-steps", "2000") == 0
    assert run_in(tmp_path / "b", *SMALL, *constant, "--total-steps", "900") == 0
    middle = last_state(tmp_path / "b")
    assert run_in(tmp_path / "b", "--resume", "latest", "--total-steps", "1500") == 0
    assert run_in(tmp_path / "b", "--resume", "latest", "--total-steps", "2000") == 0
    assert capfd.readouterr().err == ""
    whole, resumed = last_state(tmp_path / "a"), last_state(tmp_path / "b")
    assert differences(whole, resumed) == []
    assert differences(whole, middle) != []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (["--workers", "2"], "workers=2 was 1"),
        (["--rollout", "4"], "rollout=4 was 8"),
        (["--no-serial"], ""),
    ],
    ids=str,
)
def test_environments_start_anew_where_settings_have_changed(tmp_path, capfd, changes, reason):
    assert run_in(tmp_path, *SMALL, "--total-steps", "500") == 0
    before = last_state(tmp_path)
    arguments = ("--resume", "latest", "--total-steps", "1000")
    assert run_in(tmp_path, *arguments, *changes) == 0
    line = f"warning: {reason}; all environments start anew, on other random streams\n"
    assert capfd.readouterr().err == (line if reason else "")
    after = last_state(tmp_path)
    assert after["steps"] >= 1000
    if "--no-serial" in changes:
        assert "sampler" not in after
        assert run_in(tmp_path, "--resume", "latest", "--total-steps", "1100", "--serial") == 0
        assert "checkpoint is not of a serial run" in capfd.readouterr().err
    else:
        seeds = [state["sampler"]["settings"]["seed"] for state in (before, after)]
        assert seeds[0] == 2 != seeds[1]


DRIFTS = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Drifts(CartPoleEnv):
    resets = 0

    def reset(self, **kwargs):
        observation, info = super().reset(**kwargs)
        Drifts.resets += 1
        self.state = tuple(x + Drifts.resets * 1e-3 for x in self.state)
        return observation + Drifts.resets * 1e-3, info

gym.register("Drifts-v0", Drifts)
"""


def test_an_environment_that_its_seed_does_not_determine_is_a_warning(tmp_path, capfd, monkeypatch):
    (tmp_path / "drifting.py").write_text(DRIFTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = [*SMALL, "--env", "drifting:Drifts-v0"]
    assert run_in(tmp_path / "runs", *arguments, "--total-steps", "500") == 0
    assert run_in(tmp_path / "runs", "--resume", "latest", "--total-steps", "700") == 0
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("warning: rollout worker 0, env drifting:Drifts-v0, lane ")
    assert "depends on more than its seed; all environments start anew" in line
    assert last_state(tmp_path / "runs")["steps"] >= 700


def command(folder, *arguments):
    """The command as users run it, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "cli.train", *arguments, "--run-dir", str(folder)],
        cwd=folder.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_an_interrupted_run_ends_as_one_in_one_go(tmp_path):
    arguments = [*SMALL, "--total-steps", "20000", "--learner.normalize-rewards"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    process = command(whole, *arguments)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    process = command(stopped, *arguments)
    for line in process.stdout:
        if line.startswith("first batch"):
            break
    process.send_signal(signal.SIGINT)  # at whatever update it is
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert 0 < last_state(stopped)["steps"] < 20_000
    process = command(stopped, "--resume", "latest")
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert differences(last_state(whole), last_state(stopped)) == []
