from __future__ import annotations

import time
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from helpers.processes import workers_of

from cli.background_evaluation import BackgroundEvaluation, Result
from cli.options import parse_options
from sampler.evaluation import Evaluation
from sampler.learner import checkpoint
from sampler.learner.checkpoint import CheckpointStore
from sampler.learner.trainer import Progress

ARGUMENTS = "--env CartPole-v1 --eval-every 100 --eval-episodes 2"
ENDLESS = "--eval-timeout 0.5 --eval-episodes 100000000"


class Setup:
    """An evaluation of an untrained model, and what it reported."""

    def __init__(self, folder, arguments=ARGUMENTS):
        options, *_ = parse_options(arguments.split())
        env = gym.make("CartPole-v1")
        self.model = options.model_factory()(env.observation_space, env.action_space)
        self.trainer = SimpleNamespace(progress=Progress(steps=50), state_dict=self.state)
        self.store = CheckpointStore(folder)
        self.results, self.warnings = [], []
        self.evaluation = BackgroundEvaluation(
            options, self.store, self.trainer, self.results.append, self.warnings.append
        )

    def state(self):
        steps = self.trainer.progress.steps
        return {"learner": {"model": self.model.state_dict()}, "steps": steps}

    def batch(self, steps):
        self.trainer.progress = Progress(steps=steps, seconds=float(steps))
        self.evaluation(self.trainer.progress)

    def wait(self):
        deadline = time.monotonic() + 60
        while self.evaluation.busy and time.monotonic() < deadline:
            self.evaluation.poll(timeout=0.2)
        assert not self.evaluation.busy


@pytest.fixture
def setup(tmp_path):
    setup = Setup(tmp_path)
    with setup.evaluation:
        yield setup


@pytest.mark.slow
def test_evaluations_come_when_due_and_keep_the_best(setup):
    setup.batch(99)
    assert not setup.evaluation.busy
    setup.batch(130)
    assert setup.evaluation.busy
    setup.batch(250)  # due, but one is running
    setup.wait()
    (first,) = setup.results
    assert first.steps == 130
    assert first.best
    assert len(first.greedy.scores) == len(first.sampled.scores) == 2
    assert checkpoint.load(setup.store.best)["evaluation"] == {
        "steps": 130,
        "score": first.greedy.mean,
    }
    setup.evaluation.finish(lambda: False)
    assert [result.steps for result in setup.results] == [130, 250]
    assert not setup.results[1].best  # the same weights again
    assert setup.warnings == []


@pytest.mark.slow
def test_the_process_ends_with_the_evaluation(setup, tmp_path):
    setup.batch(100)
    assert len(workers_of()) == 1
    setup.evaluation.close()
    assert workers_of() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_killed_process_is_reported_and_started_again(setup):
    setup.batch(100)
    (process,) = workers_of()
    process.kill()
    setup.wait()
    assert setup.warnings == [
        "the evaluation of step 100 failed: its process ended with exit code -9"
    ]
    setup.batch(200)
    setup.wait()
    assert [result.steps for result in setup.results] == [200]


@pytest.mark.slow
def test_weights_that_do_not_fit_are_reported_in_one_line(setup):
    setup.trainer.state_dict = lambda: {"learner": {"model": {}}, "steps": 100}
    setup.batch(100)
    setup.wait()
    (warning,) = setup.warnings
    assert "the weights do not fit" in warning
    assert "\n" not in warning


def test_the_best_score_of_a_resumed_run_is_known(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save_best({"evaluation": {"steps": 10, "score": 7.5}})
    assert Setup(tmp_path).evaluation.best == 7.5
    store.best.write_bytes(b"nonsense")
    damaged = Setup(tmp_path)
    assert damaged.evaluation.best is None
    assert "the best checkpoint's score is lost" in damaged.warnings[0]


def test_skipped_evaluations_are_said(setup, monkeypatch):
    monkeypatch.setattr(setup.evaluation, "_send", lambda: None)
    monkeypatch.setattr(setup.evaluation, "poll", lambda timeout=0.0: None)
    setup.batch(100)
    for steps in (200, 300, 400):
        setup.batch(steps)  # due, but the first one is running
    setup.evaluation._running = None
    setup.batch(450)
    assert setup.warnings == [
        "2 evaluations before that of step 450 were skipped, since the one before took longer; "
        "raise --eval-every, or lower --eval-episodes"
    ]
    setup.evaluation._running = None
    setup.batch(1000)  # one large batch: nothing was late
    assert len(setup.warnings) == 1


def test_a_result_in_words_and_by_tag():
    greedy = Evaluation(np.array([1.0, 3.0]), np.array([10, 20]))
    sampled = Evaluation(np.array([0.0, 0.0]), np.array([5, 5]))
    result = Result(1000, 2.0, greedy, sampled, best=True)
    assert result.describe() == (
        "evaluated step 1,000: greedy 2.00 +- 1.00, sampled 0.00 +- 0.00 "
        "(2 games each, the best so far)"
    )
    assert result.metrics()["eval/episodic_return"] == 2.0
    assert result.metrics()["eval/sampled_return"] == 0.0


@pytest.mark.slow
def test_an_evaluation_that_takes_too_long_is_given_up(tmp_path):
    endless = Setup(tmp_path, ARGUMENTS.replace("--eval-episodes 2", ENDLESS))
    with endless.evaluation as evaluation:
        endless.batch(100)
        evaluation.finish(lambda: False)
        assert workers_of() == []
    message = "of step 100 gave no result within eval_timeout=0.5 s; raise it, or have fewer"
    assert [message in warning for warning in endless.warnings] == [True]
    assert endless.results == []
