from __future__ import annotations

import pytest

from cli.command_line import flags
from cli.flag_hints import ALIASES, hint
from cli.options import Options, parse_options
from sampler.errors import ConfigError
from sampler.learner.algorithms.registry import ALGORITHMS

KNOWN = ["--env", "--algo", "--workers", "--learner.learning-rate", "--model.core"]


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--lr", "did you mean --learner.learning-rate?"),
        ("--learning-rate", "did you mean --learner.learning-rate?"),
        ("--core", "did you mean --model.core?"),
        ("--wokers", "did you mean --workers?"),
        ("--learner.n-step", "it is a setting of apex, r2d2 alone"),
        ("--ent-coef", "did you mean --learner.entropy-coef? it is a setting of ppo alone"),
        ("--xyz", None),
    ],
)
def test_what_was_meant(flag, expected):
    others = {"--learner.n-step": ["apex", "r2d2"], "--learner.entropy-coef": ["ppo"]}
    assert hint(flag, KNOWN, others) == expected


def test_every_alias_leads_to_a_flag():
    known = set(flags(Options()))
    for algorithm in ALGORITHMS.values():
        known.update(flags(Options(learner=algorithm.config())))
    assert set(ALIASES.values()) <= known


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--lr 1e-3", "unknown flag --lr; did you mean --learner.learning-rate?"),
        ("--num-envs 8", "unknown flag --num-envs; did you mean --envs-per-worker?"),
        (
            "--learner.n-step 3",
            "unknown flag --learner.n-step; it is a setting of r2d2, apex, dqn alone",
        ),
        (
            "--algo dqn --learner.clip 0.1",
            "unknown flag --learner.clip; it is a setting of appo, ppo alone",
        ),
    ],
)
def test_the_command_s_hints(arguments, message):
    with pytest.raises(ConfigError) as caught:
        parse_options(["--env", "CartPole-v1", *arguments.split()])
    assert str(caught.value).startswith(message)
