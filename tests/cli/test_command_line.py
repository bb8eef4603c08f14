from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest
from tyro.conf import OmitArgPrefixes

from cli.command_line import flags, parse
from sampler.errors import ConfigError


@dataclass(frozen=True)
class Machine:
    """What it runs on."""

    num_workers: int = 2
    """Processes."""
    mode: Literal["fast", "slow"] = "fast"
    """How."""


@dataclass(frozen=True)
class Learner:
    lambda_: float = 0.5
    """Decay."""

    def __post_init__(self):
        if self.lambda_ > 1:
            raise ConfigError(f"lambda_={self.lambda_} must be at most 1")


@dataclass(frozen=True)
class Settings:
    machine: OmitArgPrefixes[Machine] = field(default_factory=Machine)
    learner: Learner = field(default_factory=Learner)


def run(*arguments):
    return parse(Settings(Machine(num_workers=7)), arguments, "prog", "What it does.")


def test_flags_override_the_given_defaults():
    settings = run("--mode", "slow", "--learner.lambda_", "0.25")
    assert settings == Settings(Machine(7, "slow"), Learner(0.25))


def test_flags_of_a_group_without_prefix_and_with_one():
    assert flags(Settings()) == ["--num-workers", "--mode", "--learner.lambda_"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-wokers", "3"], "unknown flag --num-wokers; did you mean --num-workers?"),
        (["--num_wokers=3"], "unknown flag --num-wokers; did you mean --num-workers?"),
        (["--xyz"], "unknown flag --xyz; see prog --help"),
        (["stray"], "unexpected argument 'stray'; every setting has a flag, see prog --help"),
        (["--num-workers", "many"], "--num-workers: invalid"),
        (["--mode", "quick"], "invalid choice 'quick'"),
        (["--learner.lambda_"], "Missing value for argument '--learner.lambda_'"),
        (["--learner.lambda_", "2"], "lambda_=2.0 must be at most 1"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, message):
    with pytest.raises(ConfigError) as caught:
        run(*arguments)
    text = str(caught.value)
    if message.endswith("invalid"):
        assert text.startswith("--num-workers: ")
    else:
        assert text.startswith(message)
    assert "\n" not in text
    assert "│" not in text
    assert capsys.readouterr() == ("", "")


def test_help_shows_groups_units_and_defaults(capsys):
    with pytest.raises(SystemExit) as end:
        run("--help")
    assert not end.value.code
    text = capsys.readouterr().out
    assert "machine options" in text
    assert "learner options" in text
    assert "Processes. (default: 7)" in text
