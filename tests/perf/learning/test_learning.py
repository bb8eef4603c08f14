"""Finished runs become curves, scores, pictures and a table; what was there before is kept."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from cli.metrics_writer import MetricsWriter
from cli.options import parse_options
from perf.learning import training as learning
from perf.learning.results import Results, Run, mean_and_spread, met, write_readme
from perf.learning.tasks import TASKS, choose
from perf.learning.training import Settings, bring_in, read_run, record, train
from sampler.errors import FastrlError

RUN = Run(
    seed=0,
    command="fastrl-train --env CartPole-v1 --seed S",
    steps=200,
    seconds=20.0,
    score=480.0,
    games=100,
    machine="Some CPU, 2 cores",
    curve=((100, 10.0, 20.0), (200, 20.0, 40.0)),
)


def make_folder(path, seed=0, returns=(20.0, 40.0)):
    """A run folder as fastrl-train leaves it, without checkpoints."""
    path.mkdir()
    config = {"training": {"seed": seed}}
    (path / "config.json").write_text(json.dumps(config))
    typed = f"fastrl-train --env CartPole-v1 --seed {seed} --run-dir /elsewhere"
    (path / "command.txt").write_text(f"2026-01-02 03:04:05  {typed}\n")
    with MetricsWriter(path, tensorboard=False) as writer:
        for index, value in enumerate(returns, 1):
            writer.write(100 * index, 10.0 * index, {"charts/episodic_return": value})
        writer.write(100 * len(returns) + 1, 10.0 * len(returns), {"charts/SPS": 1.0})
    return path


@pytest.mark.parametrize("name", TASKS)
def test_every_command_parses(name):
    for variant in TASKS[name].variants.values():
        options, *_ = parse_options(["--serial", *variant.flags.split()])
        assert options.environment.env


def test_choosing():
    everything = choose(())
    assert ("cartpole", "ppo") in everything
    assert not {"pong", "breakout"} & {name for name, _ in everything}
    assert choose(("pong:appo", "bitflip")) == [
        ("pong", "appo"),
        ("bitflip", "hindsight"),
        ("bitflip", "without"),
    ]
    with pytest.raises(ValueError, match="no task 'chess'"):
        choose(("chess",))
    with pytest.raises(ValueError, match="no variant 'x' of pong"):
        choose(("pong:x",))


def test_a_run_folder_is_read(tmp_path):
    folder = make_folder(tmp_path / "run", seed=3)
    run = read_run(folder, [1.0, 2.0])
    assert (run.seed, run.steps, run.seconds, run.score, run.games) == (3, 201, 20.0, 1.5, 2)
    assert run.command == "fastrl-train --env CartPole-v1 --seed S"
    assert run.curve == ((100, 10.0, 20.0), (200, 20.0, 40.0))
    assert read_run(folder, [-10.0, -3.0, -10.0, -10.0], success_above=-10.0).score == 0.25


def test_a_run_that_trained_nothing_is_refused(tmp_path):
    folder = make_folder(tmp_path / "run")
    (folder / "metrics.csv").write_text("step,seconds,charts/episodic_return\n")
    with pytest.raises(FastrlError, match="has no rows"):
        read_run(folder, [1.0])


def test_results_are_kept_when_others_are_added(tmp_path):
    for seed in (1, 0):
        results = Results.read(tmp_path, "cartpole")
        results.add("ppo", replace(RUN, seed=seed))
        results.write(tmp_path)
    results = Results.read(tmp_path, "cartpole")
    results.add("appo", RUN)
    results.add("ppo", replace(RUN, score=500.0))
    results.write(tmp_path)
    again = Results.read(tmp_path, "cartpole")
    assert again == results
    assert list(again.runs["ppo"]) == [0, 1]
    assert [run.score for run in again.runs["ppo"].values()] == [500.0, 480.0]
    with (tmp_path / "cartpole.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert rows[0] == {
        "variant": "ppo",
        "seed": "0",
        "step": "100",
        "seconds": "10.0",
        "episodic_return": "20.0",
    }
    assert (tmp_path / "cartpole.png").read_bytes().startswith(b"\x89PNG")


def test_curves_with_points_at_different_steps_are_averaged():
    flat = replace(RUN, curve=tuple((step, 0.0, 10.0) for step in range(10, 1001, 10)))
    short = replace(RUN, curve=tuple((step, 0.0, 20.0) for step in range(7, 501, 50)))
    steps, mean, spread = mean_and_spread([flat, short])
    assert steps[0] >= 5
    assert steps[-1] < 457  # where the shorter one ends
    np.testing.assert_allclose(mean, 15.0)
    np.testing.assert_allclose(spread, np.std([10.0, 20.0], ddof=1))
    steps, mean, spread = mean_and_spread([replace(RUN, curve=())])
    assert len(steps) == len(mean) == len(spread) == 0


def test_a_single_point_is_a_curve():
    steps, mean, _ = mean_and_spread([replace(RUN, curve=((100, 1.0, 7.0),))])
    assert mean.tolist() == [7.0] * len(steps)


def test_verdicts():
    task, good, bad = TASKS["cartpole"], RUN, replace(RUN, seed=1, score=400.0)
    assert met(task, "ppo", [good]) == "2 of 3 seeds to come"
    assert met(task, "ppo", [good, bad]) == "no: 1 of 2"
    assert met(task, "ppo", [replace(good, seed=seed) for seed in range(3)]) == "yes"
    controls = [replace(RUN, seed=seed, score=201.0) for seed in range(3)]
    assert met(TASKS["cartpole-no-velocity"], "feed-forward", controls) == "no: 0 of 3"
    assert met(TASKS["stored-state"], "zero", [good]) == "-"


def test_the_readme_has_a_row_for_each_variant(tmp_path):
    results = Results("cartpole")
    for seed, score in enumerate((480.0, 490.0, 500.0)):
        results.add("ppo", replace(RUN, seed=seed, score=score))
    results.add("a2c", RUN)
    results.write(tmp_path)
    write_readme(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert (
        "| [cartpole](#cartpole): ppo | >= 475 | 480, 490, 500 | 490 ± 10 | 200 | 20s | yes |"
        in text
    )
    assert "| [cartpole](#cartpole): a2c | >= 475 | 480 | 480 | 200 | 20s | 2 of 3 seeds" in text
    assert "\n    fastrl-train --env CartPole-v1 --seed S\n" in text
    assert "![CartPole-v1, policy gradients](cartpole.png)" in text
    assert "Some CPU, 2 cores" in text
    assert "Pong" not in text


def test_a_published_curve_is_compared_at_equal_steps(tmp_path):
    curve = tuple((step, 0.0, 120.0) for step in range(0, 2_000_001, 10_000))
    results = Results("breakout")
    results.add("appo", replace(RUN, curve=curve))
    results.write(tmp_path)
    write_readme(tmp_path)
    text = (tmp_path / "README.md").read_text()
    ours = "In the last tenth of its steps, until 1,983,333, appo returned 120 while training"
    assert f"{ours}, CleanRL's PPO 45.6 at the same steps." in text  # 32 at 1.5e6, 49 at 2e6


def test_a_run_made_by_hand_is_brought_in(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "run")
    monkeypatch.setattr(learning, "play", lambda folder, games: [20.0] * games)
    settings = Settings(from_run=("pong:appo", str(folder)), results=tmp_path / "results")
    bring_in(settings)
    run = Results.read(tmp_path / "results", "pong").runs["appo"][0]
    assert (run.score, run.games) == (20.0, TASKS["pong"].games)
    with pytest.raises(ValueError, match="which variant"):
        bring_in(replace(settings, from_run=("pong", str(folder))))
    with pytest.raises(ValueError, match="pairs"):
        bring_in(replace(settings, from_run=("pong:appo",)))


def test_a_run_that_fails_is_reported_and_the_others_go_on(tmp_path, monkeypatch):
    def fake_train(flags, seed, run_dir):
        if seed == 1:
            raise learning.CommandFailed("fastrl-train: exit 1")
        return make_folder(tmp_path / f"run{seed}", seed)

    monkeypatch.setattr(learning, "train", fake_train)
    monkeypatch.setattr(learning, "play", lambda folder, games: [500.0] * games)
    failures = learning.train_all(Settings(only=("cartpole:ppo",), results=tmp_path))
    assert failures == ["fastrl-train: exit 1"]
    assert list(Results.read(tmp_path, "cartpole").runs["ppo"]) == [0, 2]


@pytest.mark.slow
def test_training_and_playing(tmp_path):
    flags = "--env CartPole-v1 --algo ppo --total-steps 2000 --workers 1 --log-every 0.05"
    folder = train(flags, 5, str(tmp_path / "runs"))
    record("cartpole", "ppo", folder, tmp_path)
    run = Results.read(tmp_path, "cartpole").runs["ppo"][5]
    assert run.command.endswith(f"fastrl-train {flags} --seed S")
    assert run.steps >= 2000
    assert run.games == 100
    assert 0 < run.score <= 500


def test_failing_commands_are_reported(tmp_path):
    with pytest.raises(learning.CommandFailed, match=r"fastrl-train --env .*: exit 2"):
        train("--env NoSuchEnv-v0 --algo ppo", 0, str(tmp_path))
