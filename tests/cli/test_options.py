from __future__ import annotations

import dataclasses
import json
from functools import cache

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from cli import train
from cli.command_line import flags
from cli.options import Options, parse_options, saved_options
from cli.run_folder import RunFolder
from sampler.errors import ConfigError, FastrlError, one_line
from sampler.learner.algorithms.appo import APPOConfig
from sampler.learner.algorithms.ppo import PPOConfig
from sampler.learner.algorithms.registry import ALGORITHMS
from sampler.runtime import inspection


def options(*arguments):
    return parse_options(["--env", "CartPole-v1", *arguments])[0]


def test_the_preset_follows_env_and_algo():
    small, line, _ = parse_options(["--env", "CartPole-v1"])
    atari = parse_options(["--env", "BreakoutNoFrameskip-v4"])[0]
    assert line.startswith("appo with settings for classic control: ")
    assert "\n" not in line
    assert atari.learner == APPOConfig(reward_clip=1.0)
    assert (atari.sampler.rollout, atari.sampler.batch) == (32, 32)
    assert small.learner != atari.learner
    ppo = options("--algo", "ppo")
    assert isinstance(ppo.learner, PPOConfig)
    assert ppo.sampler.sync


def test_flags_override_the_preset_and_are_named():
    flags = "--workers 32 --rollout 8 --learner.lr 0.02 --model.core gru"
    chosen, line, _ = parse_options(["--env", "CartPole-v1", *flags.split()])
    assert chosen.sampler.workers == 32
    assert chosen.sampler.rollout == 8
    assert chosen.learner.learning_rate == 0.02
    assert chosen.model.core == "gru"
    assert line.endswith("changed: rollout=8, learning_rate=0.02, core=gru")


def test_the_rows_that_an_algorithm_needs_are_those_that_are_shown_and_saved():
    flags = "--env CartPole-v1 --algo r2d2 --serial"
    for rows in ("--rollout 64", "--overlap 3", "--rollout 64 --overlap 3"):
        with pytest.raises(ConfigError, match=r"does not go with r2d2, whose settings need"):
            parse_options(f"{flags} {rows}".split())
    chosen, line, _ = parse_options(f"{flags} --rollout 48 --overlap 8".split())
    assert "changed" not in line.replace("changed: serial=True", "")
    chosen, line, _ = parse_options(f"{flags} --learner.burn-in 24 --learner.shift 32".split())
    config = chosen.sampler_config(0)
    assert (config.rollout, config.overlap) == (24 + 40, 64 - 32)
    assert (chosen.sampler.rollout, chosen.sampler.overlap) == (64, 32)
    assert chosen.as_dict()["sampler"]["rollout"] == 64
    assert "rollout=64, overlap=32" in line


def test_a_run_that_was_saved_with_other_rows_is_resumed(tmp_path):
    flags = ["--env", "CartPole-v1", "--algo", "r2d2", "--serial"]
    saved = parse_options(flags)[0].as_dict()
    saved["sampler"] |= {"rollout": 64, "overlap": 3}
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(saved))
    config = parse_options(["--resume", str(run)])[0].sampler
    assert (config.rollout, config.overlap) == (48, 8)


def test_the_main_command_keeps_its_workers():
    chosen = parse_options(["--env", "BreakoutNoFrameskip-v4", "--workers", "32"])[0]
    config = chosen.sampler_config(0)
    assert config.workers == 32
    assert config.lanes == 256


def test_environment_arguments_are_json_or_text():
    chosen = options("--env-kwargs", "render_mode=rgb_array", "sutton_barto_reward=true")
    assert chosen.environment.kwargs() == {"render_mode": "rgb_array", "sutton_barto_reward": True}
    assert chosen.sampler_config(3).env_kwargs == chosen.environment.kwargs()


def test_the_seed_reaches_sampler_and_learner():
    chosen = options("--seed", "5")
    assert chosen.sampler_config(chosen.training.seed).seed == 5
    assert chosen.learner.seed == 5
    assert options("--seed", "5", "--learner.seed", "6").learner.seed == 6


def test_every_algorithm_has_a_preset_for_every_kind_of_task():
    for algo in ALGORITHMS:
        for env in ("CartPole-v1", "BreakoutNoFrameskip-v4"):
            chosen = parse_options(["--env", env, "--algo", algo])[0]
            assert isinstance(chosen.learner, ALGORITHMS[algo].config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--env is missing"),
        ("--env CartPole-v11", "env='CartPole-v11' is not a known id; did you mean CartPole-v1"),
        ("--env CartPole-v1 --algo qqo", "algo='qqo' is not one of"),
        ("--env CartPole-v1 --workers 0", "workers=0 must be"),
        (
            "--env CartPole-v1 --workers x",
            "--workers: 'x' is not a whole number, such as 100000 or 1e5",
        ),
        ("--env CartPole-v1 --batch 7", "batch=7 is not a multiple"),
        ("--env CartPole-v1 --envs-per-worker 3", "envs_per_worker=3 is not a multiple"),
        ("--env CartPole-v1 --total-steps 0", "total_steps=0 must be"),
        ("--env CartPole-v1 --total-seconds -1", "total_seconds=-1.0 must be"),
        ("--env CartPole-v1 --seed -1", "seed=-1 must be"),
        ("--env CartPole-v1 --env-kwargs nothing", "env_kwargs='nothing' is not of the form"),
        (
            "--env CartPole-v1 --learner.gamma 2",
            "gamma=2.0 must be a number of at least 0",
        ),
        (
            "--env CartPole-v1 --keep-checkpoints 1",
            "keep_checkpoints=1 must be a whole",
        ),
        ("--env CartPole-v1 --eval-every -1", "eval_every=-1 must be a whole number of at least 0"),
        ("--env CartPole-v1 --eval-seed -1", "eval_seed=-1 must be a whole number of at least 0"),
        ("--env CartPole-v1 --lerner.lr 1", "unknown flag --lerner.lr; did you mean"),
        ("--resume nowhere", "no run 'nowhere'"),
    ],
)
def test_what_cannot_work_is_one_line(arguments, message):
    with pytest.raises(ConfigError) as caught:
        parse_options(arguments.split())
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


ODD_VALUES = (
    *("", "0", "-1", "1", "3", "1.5", "nan", "inf", "-inf", "1e999", "9" * 30, "0x10", "None"),
    *("true", "auto", "cuda:99", "x", "ä", "a=1", "a=[", "{}", "--", "-", "=", "a b", "a\nb"),
)


@cache
def flags_of(algo):
    chosen = parse_options(["--env", "CartPole-v1", "--serial", "--algo", algo])[0]
    return [flag for flag in flags(chosen) if flag not in ("--env", "--algo", "--resume")]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_flag_with_any_value_is_accepted_or_refused_in_one_line(data):
    algo = data.draw(st.sampled_from(list(ALGORITHMS)))
    arguments = ["--env", "CartPole-v1", "--serial", "--algo", algo]
    for flag in data.draw(st.lists(st.sampled_from(flags_of(algo)), min_size=1, max_size=3)):
        arguments += [flag, data.draw(st.sampled_from(ODD_VALUES))]
    try:
        parse_options(arguments)
    except FastrlError as error:
        assert one_line(error) == str(error)  # noqa: PT017


@pytest.fixture
def run(tmp_path):
    chosen = options("--rollout", "8", "--learner.lr", "0.5", "--model.hidden", "8", "4")
    with RunFolder.create(tmp_path, "CartPole-v1", "appo", 0) as folder:
        folder.save_config(chosen.as_dict())
        yield folder, chosen


def test_saved_options_come_back_as_they_were(run):
    folder, chosen = run
    assert saved_options(folder.path) == chosen
    assert isinstance(chosen, Options)


def test_resume_takes_the_run_s_settings_and_flags_override_them(run):
    folder, chosen = run
    arguments = ["--resume", str(folder.path), "--total-steps", "999"]
    resumed, line, _ = parse_options(arguments)
    assert line == f"resuming {folder.path.name}"
    assert resumed.training.total_steps == 999
    assert resumed.learner == chosen.learner
    assert resumed.model == chosen.model
    assert resumed.sampler == chosen.sampler


@pytest.mark.parametrize("arguments", ["--env Acrobot-v1", "--algo ppo"])
def test_resume_cannot_change_what_is_learned(run, arguments):
    folder, _ = run
    with pytest.raises(ConfigError, match="goes on with"):
        parse_options(["--resume", str(folder.path), *arguments.split()])


def test_naming_the_same_env_when_resuming_is_no_mistake(run):
    folder, _ = run
    parse_options(["--resume", str(folder.path), "--env", "CartPole-v1", "--algo", "appo"])


@pytest.mark.parametrize("damage", ["group", "field", "algo"])
def test_foreign_settings_are_one_line(run, damage):
    folder, chosen = run
    config = chosen.as_dict()
    if damage == "group":
        del config["sampler"]
    elif damage == "field":
        config["learner"]["never_heard_of"] = 1
    else:
        config["training"]["algo"] = "other"
    folder.config_file.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="does not fit this release"):
        saved_options(folder.path)


def test_every_setting_says_what_it_is():
    """Docstrings under the fields are the help of the flags."""
    import inspect

    for group in dataclasses.fields(Options):
        cls = group.default_factory
        source = "".join(inspect.getsource(c) for c in cls.__mro__ if dataclasses.is_dataclass(c))
        lines = source.splitlines()
        for setting in dataclasses.fields(cls):
            at = next(i for i, line in enumerate(lines) if line.startswith(f"    {setting.name}:"))
            assert '"""' in lines[at + 1], f"{cls.__name__}.{setting.name}"


@pytest.mark.parametrize(
    ("arguments", "group", "setting", "value"),
    [
        (["--learner.normalise-rewards"], "learner", "normalize_rewards", True),
        (["--learner.no-normalise-rewards"], "learner", "normalize_rewards", False),
        (["--learner.no-normalise_rewards"], "learner", "normalize_rewards", False),
        (["--model.normalise-observations"], "model", "normalize_observations", True),
    ],
)
def test_flags_by_their_former_spelling(arguments, group, setting, value):
    assert getattr(getattr(options(*arguments), group), setting) is value


def test_settings_saved_under_their_former_spelling(run):
    folder, chosen = run
    config = json.loads((folder.path / "config.json").read_text())
    config["learner"]["normalise_rewards"] = config["learner"].pop("normalize_rewards")
    config["model"]["normalise_observations"] = config["model"].pop("normalize_observations")
    (folder.path / "config.json").write_text(json.dumps(config))
    assert saved_options(folder.path) == chosen


def test_an_environment_is_looked_at_once_before_a_run(monkeypatch, tmp_path):
    looks = []

    def count(config):
        looks.append(config.env)
        return inspection.inspect_environment(config)

    monkeypatch.setattr("cli.options.inspect", count)
    monkeypatch.setattr("sampler.runtime.assembly.inspect", count)
    arguments = ["--env", "CartPole-v1", "--serial", "--total-steps", "1"]
    assert train.run([*arguments, "--run-dir", str(tmp_path)]) == 0
    assert looks == ["CartPole-v1"]
