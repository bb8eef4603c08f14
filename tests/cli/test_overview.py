"""Help at once, and true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli import overview
from cli.command_line import flags
from cli.evaluating import EvaluateOptions
from cli.options import TOTAL_STEPS, parse_options

ROOT = Path(__file__).parents[2]


def described(text):
    """The flags of an overview, and the defaults that it names."""
    found = {}
    for line in text.splitlines():
        if match := re.match(r"  (--[a-z.-]+) ", line):
            default = re.search(r"\(default: (\S+?)[;)]", line)
            found[match[1]] = default and default[1]
    return found


@pytest.mark.parametrize("module", ["train", "evaluate"])
def test_help_alone_loads_neither_torch_nor_the_parser(module):
    program = (
        f"import sys; from cli import {module}; code = {module}.run(['--help']); "
        "print(sorted({'torch', 'gymnasium', 'tyro', 'numpy'} & set(sys.modules))); sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("usage: fastrl-")
    assert ran.stdout.endswith("\n[]\n")
    assert len(ran.stdout.splitlines()) < 35


def test_the_ten_flags_of_training_and_their_defaults_are_real():
    shown = described(overview.TRAIN)
    options, *_ = parse_options(["--env", "CartPole-v1"])
    assert len(shown) == 10
    assert set(shown) <= set(flags(options))
    assert shown["--algo"] == options.training.algo
    assert shown["--workers"] == str(options.sampler.workers)
    assert shown["--envs-per-worker"] == str(options.sampler.envs_per_worker)
    assert shown["--total-steps"] == str(options.training.total_steps)
    assert f"images: {TOTAL_STEPS})" in overview.TRAIN
    assert shown["--eval-every"] == str(options.evaluation.eval_every)
    assert shown["--seed"] == str(options.training.seed)


def test_the_flags_of_evaluation_and_their_defaults_are_real():
    shown, options = described(overview.EVALUATE), EvaluateOptions()
    assert set(shown) - {"--greedy"} == set(flags(options)) - {"--run"}
    for name in ("run_dir", "checkpoint", "episodes", "lanes", "seed"):
        assert shown["--" + name.replace("_", "-")] == str(getattr(options, name))


def test_help_with_other_flags_is_complete():
    assert not overview.asks_for_overview(["--env", "CartPole-v1", "--help"])
    assert overview.asks_for_overview(["-h"])
    assert overview.with_full_help(["--help-all", "--algo", "dqn"]) == ["--help", "--algo", "dqn"]
