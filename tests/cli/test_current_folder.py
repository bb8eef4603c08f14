"""Environments in files of the folder that a command is used in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.runs import words

from cli.current_folder import look_in_current_folder

ROOT = Path(__file__).parents[2]
ENVIRONMENT = """
import gymnasium as gym

gym.register("Mine-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=20)
"""
HIDING = "raise RuntimeError('a file of the user was imported')\n"


def test_the_current_folder_comes_last_and_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", before := list(sys.path))
    look_in_current_folder()
    look_in_current_folder()
    assert before[-1] == str(tmp_path)
    assert before.count(str(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_commands_and_workers_find_an_environment_beside_them(tmp_path, method):
    (tmp_path / "my_envs.py").write_text(ENVIRONMENT)
    for name in ("sampler", "cli"):
        (tmp_path / f"{name}.py").write_text(HIDING)

    def run(command, *arguments):
        program = f"import sys; sys.path.remove(''); import fastrl.main as m; m.{command}()"
        ran = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout

    sizes = "--workers 1 --envs-per-worker 4 --rollout 8 --batch 4 --total-steps 1000"
    flags = f"--env my_envs:Mine-v0 {sizes} --eval-every 500 --eval-episodes 2"
    out = run("train", *words(flags), "--start-method", method)
    assert "evaluated step" in out
    assert "(2 whole games, raw" in run("evaluate", "latest", "--episodes", "2")
