from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from helpers.runs import SMALL, only_run, rows_of, words

from cli import evaluate, train, training
from cli.evaluating import EvaluateOptions
from cli.saver import Saver
from cli.training import crowding, resumed_seed, resuming
from sampler.config import SamplerConfig
from sampler.evaluation import MAX_GAME_STEPS
from sampler.learner.algorithms.appo import APPO, APPOConfig
from sampler.learner.checkpoint import CheckpointStore
from sampler.learner.presets import choose_preset
from sampler.learner.trainer import Progress
from sampler.models import ModelConfig, make_model


def run_in(folder, *arguments):
    """The command in this process, all of the sampler included."""
    return train.run([*arguments, "--run-dir", str(folder)])


@pytest.fixture
def trained(tmp_path):
    """A run of 2,000 steps."""
    assert run_in(tmp_path, *SMALL, "--serial", "--total-steps", "2000") == 0
    return only_run(tmp_path)


def test_a_run_leaves_a_complete_folder_and_a_summary(tmp_path, capfd):
    arguments = (*SMALL, "--serial", "--total-steps", "2000", "--seed", "3")
    assert run_in(tmp_path, *arguments) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert f"saved step {int(rows_of(only_run(tmp_path))[-1]['step']):,}" in out
    for word in (
        "starting workers",
        "appo with settings for",
        "first batch",
        "SPS",
        "lag",
        "bottleneck",
    ):
        assert word in out
    assert re.search(r"mean raw score \d", out)
    run = only_run(tmp_path)
    assert run.name.startswith("CartPole-v1__appo__3__")
    assert (tmp_path / "latest").resolve() == run
    names = {path.name.split(".")[0] for path in run.iterdir()}
    assert names == {"checkpoints", "command", "config", "events", "log", "metrics"}
    config = json.loads((run / "config.json").read_text())
    assert config["training"]["seed"] == 3
    assert config["origin"]["settings"].startswith("appo with settings for ")
    log = (run / "log.txt").read_text()
    assert config["origin"]["settings"] in log
    assert f"torch {config['origin']['versions']['torch']}" in log
    (file,) = (run / "checkpoints").iterdir()
    state, _ = CheckpointStore(run / "checkpoints").load_latest()
    assert 2000 <= state["steps"] < 2000 + 32
    assert file.name == f"checkpoint_{state['steps']:012d}.pt"
    last = rows_of(run)[-1]
    assert int(last["step"]) == state["steps"]
    for tag in ("charts/SPS", "charts/episodic_return", "losses/policy_loss", "perf/fps"):
        assert math.isfinite(float(last[tag]))


def test_resume_continues_the_step_count_exactly(trained, tmp_path, capfd):
    before, _ = CheckpointStore(trained / "checkpoints").load_latest()
    assert run_in(tmp_path, "--resume", str(trained), "--total-steps", "3000") == 0
    after, _ = CheckpointStore(trained / "checkpoints").load_latest()
    assert only_run(tmp_path) == trained
    batches = after["batches"] - before["batches"]
    assert 3000 <= after["steps"] < 3000 + 32
    assert 31 * batches < after["steps"] - before["steps"] <= 32 * batches
    steps = [int(row["step"]) for row in rows_of(trained)]
    assert steps == sorted(steps)
    assert before["steps"] in steps
    assert steps[-1] == after["steps"]
    assert len((trained / "command.txt").read_text().splitlines()) == 2
    assert json.loads((trained / "config.json").read_text())["training"]["total_steps"] == 3000


def test_resume_of_a_finished_run_ends_at_once_and_says_how_to_go_on(trained, tmp_path, capfd):
    capfd.readouterr()
    before = [path.name for path in (trained / "checkpoints").iterdir()]
    assert run_in(tmp_path, "--resume", "latest") == 0
    assert [path.name for path in (trained / "checkpoints").iterdir()] == before
    out = capfd.readouterr().out
    last = out.splitlines()[-1]
    assert re.match(r"its 2,\d{3} steps are done, so there is nothing to train; to go on: ", last)
    assert f"fastrl-train --resume {trained} --total-steps 4" in last
    assert "starting workers" not in out


@pytest.mark.slow
def test_who_is_still_starting_is_shown(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("sampler.runtime.supervisor.FIRST_NOTICE", 0.1)
    assert run_in(tmp_path, *SMALL, "--total-steps", "64") == 0
    out, err = capfd.readouterr()
    assert re.search(r"^still starting after 0 s: (rollout|policy) worker 0", out, re.MULTILINE)
    assert err == ""


def test_the_command_to_go_on_is_quoted_for_a_shell():
    line = resuming("fastrl-train", Path("/my runs/a"))
    assert shlex.split(line) == ["fastrl-train", "--resume", "/my runs/a"]


def test_epsilon_and_games_left_out_of_lists_are_logged(tmp_path):
    often = words("--algo dqn --serial --total-steps 2000 --log-every 0.1")
    assert run_in(tmp_path, *SMALL, *often) == 0
    rows = rows_of(only_run(tmp_path))
    epsilons = [float(row["charts/epsilon"]) for row in rows]
    assert epsilons[0] > epsilons[-1] > 0
    assert {row["perf/episodes_missed"] for row in rows} == {"0"}


def test_a_damaged_checkpoint_is_an_error_and_not_a_fresh_start(trained, tmp_path, capfd):
    (file,) = (trained / "checkpoints").iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    capfd.readouterr()
    assert run_in(tmp_path, "--resume", "latest") == 1
    err = capfd.readouterr().err
    assert "damaged" in err
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("short")
    assert run_in(folder, *SMALL, "--serial", "--total-steps", "64") == 0
    return only_run(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.csv", "a folder", r"metrics\.csv away to resume this run"),
        ("log.txt", "a folder", r"log\.txt: Is a directory; correct that, or choose"),
        ("command.txt", "a folder", r"command\.txt: Is a directory; correct that, or choose"),
        ("checkpoints", "nothing", "holds no checkpoint; check the run folder's name, or start"),
        ("checkpoints", "a file", "holds no checkpoint; check the run folder's name, or start"),
        ("checkpoints", "a folder", "holds no checkpoint; check the run folder's name, or start"),
    ],
)
def test_run_folders_with_something_else_are_one_line(
    short_run, tmp_path, capfd, name, content, message
):
    run = shutil.copytree(short_run, tmp_path / "run")
    if name == "checkpoints":
        shutil.rmtree(run / name)
    else:
        (run / name).unlink()
    if content == "a folder":
        (run / name).mkdir()
    elif content == "a file":
        (run / name).write_text("something")
    assert run_in(tmp_path, "--resume", str(run), "--total-steps", "128") == 1
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert re.match("fastrl-train: error: .*" + message, err)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--env", "CartPole-v11"], 2, "CartPole-v1"),
        (["--env", "CartPole-v1", "--wrong"], 2, "unknown flag --wrong"),
        (["--env", "CartPole-v1", "--algo", "ppo", "--no-sync"], 2, "sync=True"),
        (["--resume", "nothing"], 2, "no run 'nothing'"),
        (["--env", "CartPole-v1", "--env-kwargs", "wrong=1"], 2, "has no argument 'wrong'"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(tmp_path, capfd, arguments, code, message):
    assert run_in(tmp_path / "runs", *arguments) == code
    err = capfd.readouterr().err
    assert err.startswith("fastrl-train: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


BREAKS = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Breaks(CartPoleEnv):
    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 300:
            raise RuntimeError("the pole is gone")
        return super().step(action)

gym.register("Breaks-v0", Breaks)
"""


def test_a_failing_environment_is_one_line_and_a_checkpoint(tmp_path, capfd, monkeypatch):
    (tmp_path / "breaking.py").write_text(BREAKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = words("--env breaking:Breaks-v0 --serial --envs-per-worker 4 --rollout 8 --batch 4")
    assert run_in(tmp_path / "runs", *arguments) == 1
    err = capfd.readouterr().err
    assert err.startswith("fastrl-train: error: ")
    assert "the pole is gone" in err
    assert err.count("\n") == 1
    run = only_run(tmp_path / "runs")
    assert "Traceback" in (run / "log.txt").read_text()
    state, _ = CheckpointStore(run / "checkpoints").load_latest()
    assert state["steps"] > 1000


def test_a_run_folder_that_cannot_be_made_is_one_line(tmp_path, capfd):
    (tmp_path / "file").write_text("")
    assert run_in(tmp_path / "file", *SMALL, "--serial") == 2
    assert "run_dir=" in capfd.readouterr().err


def test_a_disk_without_room_for_checkpoints_is_noticed_at_the_start(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(training.shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**20))
    arguments = ("--serial", "--model.hidden", "256", "256", "--keep-checkpoints", "5")
    assert run_in(tmp_path / "runs", *SMALL, *arguments) == 2
    err = capfd.readouterr().err
    assert err.startswith("fastrl-train: error: 6 checkpoints need ")
    assert f"MiB more and 1.0 MiB are free in {tmp_path}; lower keep_checkpoints=5" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_replay_that_does_not_fit_is_refused_at_the_start(tmp_path, capfd):
    arguments = words("--env CartPole-v1 --algo dqn --serial --learner.replay-capacity")
    assert run_in(tmp_path / "runs", *arguments, f"{10**12}") == 2
    err = capfd.readouterr().err
    assert "GiB of memory are free: lower replay_capacity" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_room_for_a_replay_in_every_checkpoint_is_wanted_at_the_start(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(training.shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**22))
    arguments = words(
        "--env CartPole-v1 --algo dqn --serial --total-steps 64 --learner.save-replay"
    )
    arguments += words("--learner.learning-starts 10 --learner.replay-capacity")
    assert run_in(tmp_path / "runs", *arguments, "100") == 0
    assert run_in(tmp_path / "runs", *arguments, "100000") == 2
    assert "4 checkpoints need" in capfd.readouterr().err


@pytest.fixture
def appo_trainer():
    """What a Saver needs of a trainer of a real learner, after 100 steps."""
    spaces = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
    learner = APPO(make_model(*spaces, ModelConfig()), *spaces, APPOConfig(), device="cpu")
    state = {"steps": 100, "model": learner.model.state_dict()}
    return SimpleNamespace(progress=Progress(steps=100), learner=learner, state_dict=lambda: state)


def test_after_a_last_update_that_was_not_finite_the_clean_weights_are_saved(
    tmp_path, appo_trainer
):
    store = CheckpointStore(tmp_path)
    saver = Saver(store, appo_trainer, 10)
    model = appo_trainer.learner.model
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    loss = sum(weight.sum() for weight in model.parameters()) * float("nan")
    assert not appo_trainer.learner.step(loss, {"loss": loss})
    saver.save()
    state, _ = store.load_latest()
    assert state["steps"] == 100
    torch.testing.assert_close(dict(state["model"]), before, rtol=0, atol=0)


def test_weights_that_are_not_finite_are_not_saved_and_that_is_said(tmp_path, appo_trainer, caplog):
    store = CheckpointStore(tmp_path)
    saver = Saver(store, appo_trainer, 10)
    name, weight = next(appo_trainer.learner.model.named_parameters())
    clean = weight.detach().clone()
    with torch.no_grad():
        weight[:] = float("inf")
        saver.save()
        assert store.paths() == []
        assert f"{name} is not finite: no checkpoint was saved" in caplog.text
        weight[:] = clean
    saver.save()
    assert len(store.paths()) == 1


def test_crowding_names_flags_that_give_as_many_environments():
    config = SamplerConfig("CartPole-v1", workers=32, envs_per_worker=8, batch=32)
    line = crowding(config, cores=2)
    assert line is not None
    assert "32 rollout workers share 2 cores" in line
    assert "--workers 2 --envs-per-worker 128 --groups 4 steps" in line
    few = crowding(replace(config, workers=4), cores=2)
    assert few is not None
    assert "--workers 2 --envs-per-worker 16 steps" in few
    synchronous = crowding(replace(config, batch=256, sync=True), cores=2)
    assert synchronous is not None
    assert "--envs-per-worker 128 steps" in synchronous
    odd = crowding(replace(config, workers=5, envs_per_worker=7, groups=1, batch=35), cores=2)
    assert odd is not None
    assert "--envs-per-worker 18 steps" in odd
    assert crowding(config, cores=32) is None


def test_what_crowding_advises_leaves_the_batch_as_it_is():
    images = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    actions = gym.spaces.Discrete(4)
    usual = choose_preset("appo", images, actions, workers=32)
    advised = choose_preset("appo", images, actions, workers=2, envs_per_worker=128, groups=4)
    assert advised.sampler["batch"] == usual.sampler["batch"] == 32


def test_resumed_runs_use_other_streams():
    assert resumed_seed(7, 0) == 7
    assert len({7, resumed_seed(7, 100), resumed_seed(7, 200), resumed_seed(8, 100)}) == 4


def test_evaluation_of_a_run(trained, tmp_path, capfd):
    capfd.readouterr()
    assert evaluate.run(["--run-dir", str(tmp_path), "--episodes", "4", "--lanes", "2"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    scores = [float(score) for score in re.search(r"scores +(.*)", out)[1].split()]
    assert len(scores) == 4
    assert f"mean {sum(scores) / 4:.2f}" in out
    assert "4 whole games, raw scores, greedy" in out
    assert evaluate.run([str(trained), "--sampled", "--episodes", "2"]) == 0
    assert "sampled" in capfd.readouterr().out


def test_the_checkpoint_s_name_is_taken_as_it_is_printed(trained, capfd):
    capfd.readouterr()
    assert evaluate.run([str(trained), "--episodes", "1"]) == 0
    name = re.search(r"checkpoint_\d+\.pt", before := capfd.readouterr().out)[0]
    assert evaluate.run([str(trained), "--episodes", "1", "--checkpoint", name]) == 0
    assert capfd.readouterr().out == before


def test_the_limit_of_a_game_s_steps_is_the_library_s():
    assert EvaluateOptions().max_game_steps == MAX_GAME_STEPS


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--checkpoint", "best"], 2, "no best checkpoint"),
        (["--checkpoint", "/nowhere.pt"], 1, "/nowhere.pt does not exist"),
        (["--episodes", "0"], 2, "episodes=0"),
        (["--max-game-steps", "0"], 2, "max_game_steps=0"),
        (["--max-game-steps", "1"], 1, "max_game_steps=1; raise it"),
        (["--laness", "1"], 2, "did you mean --lanes?"),
    ],
)
def test_mistakes_in_evaluation_are_one_line(trained, capfd, arguments, code, message):
    capfd.readouterr()
    assert evaluate.run([str(trained), *arguments]) == code
    err = capfd.readouterr().err
    assert message in err
    assert err.count("\n") == 1


class Breaks(CartPoleEnv):
    """Cart-pole that fails after 300 steps."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps > 300:
            raise RuntimeError("out of order")
        return super().step(action)


def test_an_error_after_something_was_saved_gives_the_command_that_goes_on(tmp_path, capfd):
    gym.register("Breaks-v0", Breaks)
    try:
        small = ("--env", "Breaks-v0", *SMALL[2:], "--serial", "--max-restarts", "0")
        assert run_in(tmp_path, *small) == 1
    finally:
        gym.registry.pop("Breaks-v0")
    out, err = capfd.readouterr()
    assert "out of order" in err
    line = r"saved step ([\d,]+); to go on: fastrl-train --resume (\S+)"
    steps, path = re.search(line, out).groups()
    run = only_run(tmp_path)
    assert path == str(run)
    state, _ = CheckpointStore(run / "checkpoints").load_latest()
    assert f"{state['steps']:,}" == steps
