"""How a policy worker's process is set up: which actor, which random stream, what it reports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import numpy as np
import pytest
from helpers.policy import policy_context
from helpers.processes import PATIENCE, wait_until
from helpers.store import ask, make_shared

from sampler.errors import ModelError
from sampler.policy_worker.main import main, make_actor
from sampler.policy_worker.model_actor import ModelActor
from sampler.policy_worker.requests import RequestBook
from sampler.process.bell import Bell
from sampler.process.launch import context, end, start
from sampler.process.report import error_of
from sampler.shm.control import STOP
from sampler.shm.signals import ANSWERED, ASKED


@pytest.fixture
def shared():
    shared = make_shared()
    yield shared
    shared.close()


@contextmanager
def process_of(given):
    """A policy worker's process, started."""
    process = context("spawn").Process(target=main, args=(given,), daemon=True)
    start(process)
    try:
        yield process
    finally:
        end(process, PATIENCE)


def test_random_actions_follow_from_the_seed_and_from_how_often_it_was_restarted(shared):
    ask(shared, group=2, token=0, step=0)
    requests = RequestBook(shared, 1).collect()

    def drawn(**given):
        actor = make_actor(policy_context(shared, inference="random", **given))
        return [actor.act(requests, {})[0]["actions"].tolist() for _ in range(20)]

    first = drawn(seed=3)
    assert drawn(seed=3) == first
    assert drawn(seed=4) != first
    assert drawn(seed=3, restarts=1) != first


WITHOUT_TORCH = """
    import sys
    from helpers.policy import policy_context
    from helpers.store import make_shared
    from sampler.policy_worker.main import limit_threads, make_actor

    given = policy_context(make_shared(), inference="random")
    limit_threads(given)
    make_actor(given)
    print("torch" in sys.modules)
"""


def test_random_actions_need_no_torch():
    path = os.pathsep.join(filter(None, sys.path))
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT_TORCH)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (ran.stdout, ran.stderr) == ("False\n", "")


def test_a_model_acts_where_actions_are_not_random(shared):
    from helpers.models import make_history

    actor = make_actor(policy_context(shared, make_model=make_history))
    assert isinstance(actor, ModelActor)
    assert actor.inference.device.type == "cpu"


def test_the_process_answers_requests_until_it_is_told_to_stop(shared):
    bell, theirs = Bell(), Bell()
    with process_of(policy_context(shared, bell, theirs, inference="random")) as process:
        wait_until(lambda: shared.control.workers[3]["ready"], "its start")
        ask(shared, group=2, token=1, step=3)
        bell.ring()
        assert theirs.wait(PATIENCE)
        assert shared.requests[2, ANSWERED] == shared.requests[2, ASKED]
        written = shared.store["log_probs"].reshape(-1, 4)[2:4, 3]
        np.testing.assert_allclose(written, -np.log(9), rtol=1e-6)
        shared.control.words[STOP] = 1
        bell.ring()
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL  # its own, with whatever it has started
    assert shared.errors.take(3) == ""
    bell.close()
    theirs.close()


def fail(observation_space, action_space):
    raise ValueError("no such network")


def test_a_model_that_cannot_be_made_is_reported_with_the_workers_name(shared):
    with process_of(policy_context(shared, make_model=fail)) as process:
        process.join(PATIENCE)
        error = error_of(shared.errors.take(3), ModelError)
    assert type(error) is ModelError
    assert str(error) == "policy worker 1: ValueError: no such network"
    assert "in fail" in error.traceback_text
