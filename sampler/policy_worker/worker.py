"""One policy worker: answers every request that is ready with one inference batch."""

from __future__ import annotations

import time
from typing import Any, Protocol

import numpy as np

from sampler.policy_worker.requests import RequestBook, Requests, RowAccess, select
from sampler.shm.control import STOP
from sampler.shm.counters import Stage
from sampler.shm.ordering import release
from sampler.worker.context import WorkerContext

WAKE_INTERVAL = 1.0  # seconds after which a sleeping worker checks for work, though no bell rang


class Actor(Protocol):
    """Chooses actions for a batch of lanes; keeps each lane's state between steps."""

    inputs: list[str]
    """Fields that `act` needs."""

    def prepare(self, buffers: list[np.ndarray]) -> None:
        """Called once with the buffers in which inputs will arrive."""

    def load(self, version: int) -> int:
        """Load weights newer than `version`, if there are any; returns the version in use."""

    def begin(self, requests: Requests) -> None:
        """Called first with all requests: lanes that begin their first rows get a new state."""

    def knows(self, requests: Requests) -> np.ndarray:
        """Which requests it can answer, bool [R]: False where the state of their lanes is lost."""

    def act(
        self, requests: Requests, inputs: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, np.ndarray] | None]:
        """Fields of the transitions [N, ...], and (lanes' positions in the batch [n], states
        [n, ...]) of the rows that begin here, or None."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that later actions depend on, except the weights."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict()`. Raises StateError if it does not fit."""


class PolicyWorker:
    """The loop that serves requests with an actor."""

    def __init__(self, context: WorkerContext, actor: Actor):
        self.index = context.index
        self.shared = shared = context.shared
        self.bell, self.worker_bells = context.bell, context.peer_bells
        self.actor = actor
        self.weights = context.weights
        self.counters = shared.counters.policy[self.index]
        self.book = RequestBook(shared, self.index)
        self.rows = RowAccess(shared, len(self.book.lanes))
        self.version = -1

    def start(self) -> None:
        """Load the first weights."""
        self.actor.prepare(list(self.rows.buffers.values()))
        self._load_weights()
        slot = self.shared.topology.policy_slot(self.index)
        self.shared.control.workers[slot]["ready"] = 1

    def run(self) -> None:
        """Work until the sampler stops."""
        self.start()
        self.counters.enter(Stage.GATHERING)
        words = self.shared.control.words
        while not words[STOP]:
            if not self.serve():
                self.sleep()

    def sleep(self) -> None:
        began = self.counters.enter(Stage.WAITING)
        self.bell.wait(WAKE_INTERVAL)
        # The stage must change before requests are read: the supervisor relies on that order.
        self.counters.add("wait_ns", self.counters.enter(Stage.GATHERING) - began)

    def serve(self) -> bool:
        """Answer all requests that are ready; False if there are none."""
        requests = self.book.collect()
        if requests is None:
            return False
        # After collecting: in sync mode rows are handed out only when the weights that they must
        # be made with have been published, so these weights are there when a row's request is.
        self._load_weights()
        self.actor.begin(requests)
        known = self.actor.knows(requests)
        if not known.all():
            self._wake(self.book.refuse(requests, ~known))
            if not known.any():
                return True
            requests = select(requests, known)
        counters = self.counters
        began = counters.enter(Stage.GATHERING)
        inputs = self.rows.gather(requests, self.actor.inputs)
        gathered = counters.enter(Stage.INFERENCE)
        outputs, states = self.actor.act(requests, inputs)
        acted = counters.enter(Stage.WRITING)
        self.rows.write(requests, {**outputs, "policy_version": self.version})
        if states is not None:
            lanes, values = states
            self.rows.write_states(requests.stored[lanes], values)
        release()
        # Counted before answering, so that no batch is finished before its observations count.
        counters.add("batches", 1)
        counters.add("observations", len(requests.lanes))
        self._wake(self.book.answer(requests))
        counters.add("gather_ns", gathered - began)
        counters.add("inference_ns", acted - gathered)
        counters.add("write_ns", time.monotonic_ns() - acted)
        return True

    def state_dict(self) -> dict[str, Any]:
        """The worker's state outside the shared memory."""
        return {"version": self.version, "actor": self.actor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict()`; the weights must already be restored. Raises
        StateError."""
        self.actor.load_state_dict(state["actor"])
        self.actor.load(-1)
        self.version = state["version"]  # if it is older than the weights, `serve` loads them

    def _load_weights(self) -> None:
        if self.weights.version == self.version:
            return
        began = self.counters.enter(Stage.LOADING_WEIGHTS)
        self.version = self.actor.load(self.version)
        self.counters["version"] = self.version
        self.counters.add("weight_loads", 1)
        self.counters.add("weights_ns", time.monotonic_ns() - began)

    def _wake(self, workers: set[int]) -> None:
        for worker in workers:
            self.worker_bells[worker].ring()
