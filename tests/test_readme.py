"""What the README shows is run as it is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def code_blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_custom_learner_runs_and_learns(tmp_path):
    (script,) = code_blocks("python")
    (tmp_path / "learner.py").write_text(script)
    result = subprocess.run(
        [sys.executable, "learner.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    (mean_return,) = re.findall(r"mean return: ([\d.]+)", result.stdout)
    assert float(mean_return) > 100  # a random policy gets about 22


def test_the_commands_that_it_shows_are_understood():
    from cli.command_line import flags
    from cli.evaluating import EvaluateOptions
    from cli.options import parse_options

    commands = re.findall(
        r"^    (?:pip .* && )?(fastrl-train|fastrl-eval) (.+)$", README, re.MULTILINE
    )
    training = [arguments.split() for name, arguments in commands if name == "fastrl-train"]
    assert training
    for arguments in training:
        options, *_ = parse_options(arguments)
        assert options.environment.env == arguments[arguments.index("--env") + 1]
    evaluating = [arguments.split() for name, arguments in commands if name == "fastrl-eval"]
    assert evaluating
    known = set(flags(EvaluateOptions()))
    for run, *arguments in evaluating:
        assert run == "runs/latest"
        assert {word for word in arguments if word.startswith("--")} <= known


def test_every_flag_named_in_it_exists():
    from cli.command_line import flags
    from cli.evaluating import EvaluateOptions
    from cli.options import SHORT, parse_options

    options, *_ = parse_options(["--env", "CartPole-v1"])
    known = {*flags(options), *flags(EvaluateOptions()), *SHORT, "--help", "--help-all", "--greedy"}
    named = set(re.findall(r"`?(--[a-z][a-z.-]*[a-z])\b", README)) - {"--index-url"}
    assert named <= known | {"--learner", "--model"}, named - known


def test_every_profiler_named_in_it_exists():
    named = re.findall(r"python -m (perf\.\w+)", README)
    assert named
    for module in named:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()
