"""The policy worker's loop around an actor, without processes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.policy import policy_context
from helpers.processes import PATIENCE, wait_until
from helpers.store import ask, make_shared

from sampler.policy_worker.worker import PolicyWorker
from sampler.process.bell import Bell
from sampler.shm.control import STOP
from sampler.shm.counters import Stage
from sampler.shm.signals import ANSWERED, ASKED, REFUSED


class Sevens:
    """Chooses action 7 in every lane; knows only lanes of the groups at some positions."""

    def __init__(self):
        self.inputs = ["age"]
        self.prepared = None
        self.loaded = []
        self.strangers = []
        self.begun = []
        self.batches = []
        self.states = None

    def prepare(self, buffers):
        self.prepared = buffers

    def load(self, version):
        self.loaded.append(version)
        return version + 1

    def begin(self, requests):
        self.begun.append(requests.positions.tolist())

    def knows(self, requests):
        return ~np.isin(requests.positions, self.strangers)

    def act(self, requests, inputs):
        self.batches.append(len(requests.lanes))
        count = len(requests.lanes)
        outputs = {"actions": np.full(count, 7), "log_probs": np.full(count, -0.5, np.float32)}
        return outputs, self.states


@pytest.fixture
def worker():
    """Policy worker 1 of two, which serves rollout worker 1, and that one's bell."""
    shared = make_shared(state_shape=(2,))
    bell, theirs = Bell(), Bell()
    yield PolicyWorker(policy_context(shared, bell, theirs), Sevens()), theirs
    bell.close()
    theirs.close()
    shared.close()


def test_starting_loads_weights_and_says_that_it_is_ready(worker):
    worker, _ = worker
    worker.weights.latest[0] = 0
    worker.start()
    assert worker.actor.loaded == [-1]
    assert worker.version == worker.counters["version"] == 0
    assert len(worker.actor.prepared) == len(worker.rows.buffers)
    assert [row["ready"] for row in worker.shared.control.workers] == [0, 0, 0, 1]


def test_requests_are_answered_in_their_rows_and_who_asked_is_woken(worker):
    worker, theirs = worker
    shared = worker.shared
    assert not worker.serve()
    ask(shared, group=2, token=1, step=3)
    ask(shared, group=3, token=4, step=0)
    assert worker.serve()
    assert theirs.wait(0)
    assert worker.actor.batches == [4]  # both at once
    actions = shared.store["actions"].reshape(-1, 4)
    assert (actions[2:4, 3] == 7).all()  # two rows for each token
    assert (actions[8:10, 0] == 7).all()
    assert actions.sum() == 4 * 7
    assert (shared.requests[2:, ANSWERED] == shared.requests[2:, ASKED]).all()
    assert (worker.counters["batches"], worker.counters["observations"]) == (1, 4)
    assert not worker.serve()


def test_requests_of_others_are_left_alone(worker):
    worker, _ = worker
    ask(worker.shared, group=0, token=0, step=0)
    assert not worker.serve()


def test_requests_from_lost_states_are_refused_and_the_others_answered(worker):
    worker, theirs = worker
    shared = worker.shared
    worker.actor.strangers = [0]
    ask(shared, group=2, token=1, step=3)
    ask(shared, group=3, token=4, step=0)
    assert worker.serve()
    assert theirs.wait(0)
    assert worker.actor.batches == [2]
    assert shared.requests[2, REFUSED] == shared.requests[2, ASKED] != shared.requests[2, ANSWERED]
    assert shared.requests[3, ANSWERED] == shared.requests[3, ASKED]
    worker.actor.strangers = [0, 1]
    ask(shared, group=3, token=4, step=1)
    assert worker.serve()
    assert worker.actor.batches == [2]  # nobody to act for
    assert worker.actor.begun == [[0, 1], [1]]  # also of those refused


def test_states_that_rows_begin_with_are_stored_in_these_rows(worker):
    worker, _ = worker
    worker.actor.states = np.array([1, 2]), np.array([[3.0, 4.0], [5.0, 6.0]])
    ask(worker.shared, group=2, token=1, step=0)
    ask(worker.shared, group=3, token=4, step=0)
    assert worker.serve()
    states = worker.shared.store["rnn_state"].reshape(-1, 2)
    assert states[3].tolist() == [3, 4]  # the second lane of the first group, in token 1
    assert states[8].tolist() == [5, 6]
    assert states.sum() == 18


def test_newer_weights_are_loaded_before_the_next_batch(worker):
    worker, _ = worker
    worker.start()
    for version in (0, 0, 1):
        worker.weights.latest[0] = version
        ask(worker.shared, group=2, token=1, step=version)
        worker.serve()
    assert worker.actor.loaded == [-1, 0]
    versions = worker.shared.store["policy_version"].reshape(-1, 4)
    assert versions[2, :2].tolist() == [0, 1]
    assert worker.counters["weight_loads"] == 2


def test_it_runs_until_it_is_told_to_stop(worker):
    worker, theirs = worker
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_until(lambda: worker.counters["stage"] == Stage.WAITING, "the wait")
    ask(worker.shared, group=2, token=1, step=0)
    worker.bell.ring()
    assert theirs.wait(PATIENCE)
    worker.shared.control.words[STOP] = 1
    worker.bell.ring()
    thread.join(PATIENCE)
    assert not thread.is_alive()
