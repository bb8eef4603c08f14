from __future__ import annotations

import numpy as np
import pytest
from helpers.store import make_shared

from sampler.policy_worker.worker import PolicyWorker
from sampler.process.bell import Bell
from sampler.rollout_worker.request import Request
from sampler.shm.shared import Topology
from sampler.shm.weights import WeightStore


class Recorder:
    """Chooses action 7 for all lanes that it knows, and notes what it is asked."""

    inputs = ("obs", "age")

    def __init__(self, weights: WeightStore, knows=True):
        self.weights, self.known = weights, knows
        self.calls = []

    def prepare(self, buffers):
        self.calls.append("prepare")

    def load(self, version):
        self.calls.append(("load", version))
        return self.weights.version

    def begin(self, requests):
        self.calls.append(("begin", requests.positions.tolist()))

    def knows(self, requests):
        return (requests.positions % 2 == 0) | self.known

    def act(self, requests, inputs):
        self.calls.append(("act", requests.positions.tolist(), sorted(inputs)))
        count = len(requests.lanes)
        actions, states = np.full(count, 7), np.full((1, 2), 3.0)
        return {"actions": actions, "log_probs": np.zeros(count)}, (np.array([0]), states)


class Setup:
    def __init__(self, knows=True):
        self.shared = make_shared(Topology(2, 2, 2, 1), state_shape=(2,))
        self.actor = Recorder(self.shared.weights, knows)
        self.bells = {0: Bell(), 1: Bell()}
        self.worker = PolicyWorker(0, self.shared, Bell(), self.bells, self.actor)
        self.requests = [Request(self.shared, group) for group in range(4)]
        self.publish()
        self.worker.start()
        self.actor.calls.clear()

    def publish(self):
        self.shared.weights.begin()
        self.shared.weights.publish()

    def ask(self, group, token, step):
        self.requests[group].begin(token, step, 1)
        self.requests[group].ask(step)

    def close(self):
        for bell in (self.worker.bell, *self.bells.values()):
            bell.close()


@pytest.fixture(params=[True, False], ids=["all known", "odd groups unknown"])
def setup(request):
    setup = Setup(request.param)
    yield setup
    setup.close()


def test_all_requests_are_answered_at_once_or_refused(setup):
    known = setup.actor.known
    setup.ask(0, token=0, step=0)
    setup.ask(3, token=5, step=2)
    assert setup.worker.serve()
    answered = [0, 3] if known else [0]
    assert setup.actor.calls == [("begin", [0, 3]), ("act", answered, ["age", "obs"])]
    assert setup.requests[0].answered
    assert setup.requests[3].answered == known
    assert setup.requests[3].refused != known
    assert [bell.wait(0) for bell in setup.bells.values()] == [True, True]
    actions, states = setup.shared.store["actions"], setup.shared.store["rnn_state"]
    assert actions[0, :2, 0].tolist() == [7, 7]
    assert actions[2, 2:, 2].tolist() == ([7, 7] if known else [0, 0])
    assert actions.sum() == 7 * 2 * len(answered)
    assert states[0, 0].tolist() == [3, 3]
    assert states.sum() == 6
    assert setup.worker.counters["observations"] == 2 * len(answered)
    assert not setup.worker.serve()  # nothing is asked twice


def test_nothing_is_inferred_where_every_request_is_refused():
    setup = Setup(knows=False)
    setup.ask(1, token=0, step=1)
    assert setup.worker.serve()
    assert setup.requests[1].refused
    assert [call[0] for call in setup.actor.calls] == ["begin"]
    assert setup.worker.counters["batches"] == 0
    setup.close()


def test_newer_weights_are_loaded_before_the_next_batch(setup):
    setup.publish()
    setup.ask(0, token=0, step=0)
    setup.worker.serve()
    assert setup.actor.calls[0] == ("load", 0)
    assert setup.worker.version == setup.worker.counters["version"] == 1
    assert setup.shared.store["policy_version"][0, :2, 0].tolist() == [1, 1]
    setup.ask(0, token=0, step=1)
    setup.worker.serve()
    assert [call[0] for call in setup.actor.calls].count("load") == 1
