"""Algorithms, models and environments of users, through both commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from helpers.runs import only_run, rows_of, words

from cli import evaluate, train
from cli.options import parse_options, saved_options
from sampler.errors import ConfigError
from sampler.learner.checkpoint import CheckpointStore

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZES = words("--workers 1 --envs-per-worker 4 --rollout 8 --batch 4 --serial")
PLUGINS = words("--env plugin:Corridor-v0 --algo plugin:Reinforce --model plugin:TwoLayers")
OTHERS = """
from dataclasses import dataclass
from sampler.learner.algorithms.ppo import PPO, PPOConfig
from sampler.learner.base import Learner, LearnerConfig
from sampler.models import ModelConfig, make_model

@dataclass(frozen=True)
class MyConfig(PPOConfig):
    clip: float = 0.3
    mine: float = 1.5

class MyPPO(PPO):
    config: MyConfig

@dataclass(frozen=True)
class Wide(ModelConfig):
    factor: int = 2

def make(observation_space, action_space, config: Wide):
    return make_model(observation_space, action_space, config)

class Unresolved(Learner):
    config: "Nowhere"

class Foreign(Learner):
    config: Wide

def not_a_learner():
    pass

number = 3
"""


@pytest.fixture(autouse=True)
def plugins(tmp_path, monkeypatch):
    """The modules of users in a folder that the commands are used in."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "plugin.py").write_text((EXAMPLES / "plugin.py").read_text())
    (folder / "other_plugin.py").write_text(OTHERS)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.path.append(str(folder))
    yield
    for name in ("plugin", "other_plugin"):
        sys.modules.pop(name, None)


def test_the_example_is_short():
    assert len((EXAMPLES / "plugin.py").read_text().splitlines()) < 80


def test_a_run_of_plugins_is_resumed_and_evaluated(tmp_path, capsys):
    folder = ("--run-dir", str(tmp_path / "runs"))
    flags = words("--model.width 8 --learner.no-baseline --total-steps 600")
    assert train.run([*PLUGINS, *SIZES, *flags, *folder]) == 0
    run = only_run(tmp_path / "runs")
    assert run.name.startswith("plugin-Corridor-v0__plugin-Reinforce__0__")
    config = json.loads((run / "config.json").read_text())
    assert config["model"] == {"width": 8}
    assert config["learner"]["baseline"] is False
    assert "losses/loss" in rows_of(run)[-1]
    assert train.run(["--resume", str(run), "--total-steps", "1200"]) == 0
    state, _ = CheckpointStore(run / "checkpoints").load_latest()
    assert state["steps"] >= 1200
    assert state["learner"]["model"]["module.hidden.weight"].shape == (8, 1)
    options = saved_options(run)
    assert (options.training.model, options.learner.baseline) == ("plugin:TwoLayers", False)
    capsys.readouterr()
    assert evaluate.run([str(run), "--episodes", "2", "--lanes", "1", "--sampled"]) == 0
    assert "(2 whole games" in capsys.readouterr().out
    message = "goes on with model plugin:TwoLayers, not plugin:Other"
    with pytest.raises(ConfigError, match=message):
        parse_options(["--resume", str(run), "--model", "plugin:Other"])


@pytest.mark.slow
def test_plugins_are_evaluated_in_a_process_of_its_own(tmp_path, capsys):
    flags = words("--total-steps 600 --eval-every 300 --eval-episodes 2 --eval-lanes 1")
    arguments = [*PLUGINS, *SIZES, *flags, "--run-dir", str(tmp_path / "runs")]
    assert train.run(arguments) == 0
    assert "evaluated step" in capsys.readouterr().out
    assert (only_run(tmp_path / "runs") / "checkpoints" / "best.pt").exists()


def test_a_learner_of_ours_is_extended_with_its_tuned_settings():
    flags = "--env CartPole-v1 --algo other_plugin:MyPPO --learner.mine 2.5"
    options, line, _ = parse_options([*words(flags), *SIZES])
    ours = parse_options(words("--env CartPole-v1 --algo ppo"))[0]
    assert options.learner.learning_rate == ours.learner.learning_rate
    assert options.learner.clip == 0.3 != ours.learner.clip
    assert options.sampler.sync
    assert options.model == ours.model
    assert line.startswith("other_plugin:MyPPO with settings for classic control")
    assert "mine=2.5" in line


def test_a_model_that_extends_our_settings_is_made_with_them():
    flags = "--env CartPole-v1 --model other_plugin:make --model.hidden 8 --model.factor 3"
    options = parse_options(words(flags))[0]
    assert (options.model.hidden, options.model.factor) == ((8,), 3)
    import gymnasium as gym

    env = gym.make("CartPole-v1")
    model = options.model_factory()(env.observation_space, env.action_space)
    assert any(p.shape == torch.Size([8, 4]) for p in model.parameters())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--algo other_plugin:not_a_learner", "give a subclass of sampler.learner.base.Learner"),
        ("--algo other_plugin:Unresolved", "name 'Nowhere' is not defined"),
        ("--algo other_plugin:Foreign", "use a dataclass that extends LearnerConfig"),
        ("--algo nothing", "is not one of appo, ppo,"),
        ("--model other_plugin:number", "is a int, not a factory"),
        ("--model absent_module:make", "start from the folder that holds it"),
    ],
)
def test_what_does_not_fit_is_one_line(flags, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_options(words(f"--env CartPole-v1 {flags}"))
    assert "\n" not in str(caught.value)
