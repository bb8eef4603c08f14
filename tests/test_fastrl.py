"""`fastrl` is the library and its commands, whatever lies in the folder where it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastrl
import sampler
from fastrl.names import claim

ROOT = Path(__file__).parents[1]
HIDING = "raise RuntimeError('a file of the user was imported')\n"


@pytest.fixture
def run(tmp_path):
    """run(*arguments): Python in a folder whose files have the names of all our packages."""
    for name in ("sampler", "perf"):
        (tmp_path / f"{name}.py").write_text(HIDING)
    (tmp_path / "cli").mkdir()
    for name in ("__init__", "train", "evaluate"):
        (tmp_path / "cli" / f"{name}.py").write_text(HIDING)

    def run(*arguments: str):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f".:{ROOT}"},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def test_it_exports_what_the_library_exports():
    assert fastrl.__all__ == sampler.__all__
    for name in fastrl.__all__:
        assert getattr(fastrl, name) is getattr(sampler, name)
    with pytest.raises(AttributeError, match="module 'fastrl' has no attribute 'Smapler'"):
        _ = fastrl.Smapler


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_beside_files_of_these_names_gets_the_library(method, run, tmp_path):
    (tmp_path / "script.py").write_text(
        "from fastrl import Sampler, SamplerConfig\n"
        "config = SamplerConfig(env='fastrl/Counter-v0', workers=1, envs_per_worker=2, batch=2,\n"
        f"    rollout=8, groups=1, start_method={method!r})\n"
        "with Sampler(config) as sampler:\n"
        "    print(sampler.get_batch(timeout=60).rewards.shape)\n"
    )
    ran = run("script.py")
    assert (ran.stdout, ran.stderr) == ("(2, 8)\n", "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-m", "fastrl", "train", "--env", "x:y-v0"), "fastrl-train: error: "),
        (("-m", "fastrl", "eval", "nowhere"), "fastrl-eval: error: "),
        (("-c", "import fastrl.main as m; m.train()", "--env", "x:y-v0"), "fastrl-train: error: "),
        (("-c", "import fastrl.main as m; m.evaluate()", "nowhere"), "fastrl-eval: error: "),
        (("-m", "fastrl"), "usage: python -m fastrl train"),
        (("-m", "fastrl", "perf", "../x"), "usage: python -m fastrl train"),
    ],
)
def test_the_commands_are_ours(arguments, expected, run):
    ran = run(*arguments)
    assert ran.stderr.startswith(expected)
    assert ran.returncode == 2


@pytest.mark.slow
def test_an_evaluation_beside_the_training_is_ours(run):
    sizes = "--workers 1 --envs-per-worker 4 --rollout 8 --batch 4 --groups 1"
    flags = f"--env CartPole-v1 {sizes} --total-steps 2000 --eval-every 1000"
    ran = run("-m", "fastrl", "train", *flags.split())
    assert ran.returncode == 0, ran.stderr
    assert "evaluated step" in ran.stdout


def test_the_profilers_are_ours(run):
    ran = run("-m", "fastrl", "perf", "overhead", "--help")
    assert ran.returncode == 0, ran.stderr
    assert "--seconds" in ran.stdout


def test_what_the_profilers_measure_is_ours(run):
    ran = run("-m", "fastrl", "perf", "measure.limit", *["--env", "CartPole-v1", "--seconds", "1"])
    assert ran.returncode == 0, ran.stderr
    assert "CartPole-v1 alone" in ran.stdout


def test_a_module_that_has_taken_the_name_is_named(run):
    ran = run(
        "-c", "import sys, types; sys.modules['sampler'] = types.ModuleType('x'); import fastrl"
    )
    assert "ImportError: 'sampler' has been imported from None" in ran.stderr
    assert "rename yours, or import fastrl first" in ran.stderr
    claim("sampler")  # ours has been imported here
