"""All workers in the calling process, in a fixed order: the same seed gives the same bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sampler.errors import EnvError, StateError
from sampler.policy_worker.main import make_actor
from sampler.policy_worker.worker import PolicyWorker
from sampler.rollout_worker.environments import make_lanes
from sampler.rollout_worker.main import place
from sampler.rollout_worker.worker import RolloutWorker
from sampler.runtime.assembly import Assembly


class SerialWorkers:
    """The same workers as in separate processes, called in turn."""

    restarts = 0
    whole = True
    """Whether every lane has completed its step; False during a step, and after one that failed."""

    def __init__(self, assembly: Assembly):
        self.control = assembly.shared.control
        self.rollout_workers: list[RolloutWorker] = []
        self.policy_workers: list[PolicyWorker] = []
        self._contexts = [
            assembly.for_rollout_worker(index) for index in range(assembly.config.workers)
        ]
        try:
            for context in self._contexts:
                self.rollout_workers.append(RolloutWorker(context, make_lanes(context)))
            for index in range(assembly.config.actors):
                acting = assembly.for_policy_worker(index)
                self.policy_workers.append(PolicyWorker(acting, make_actor(acting)))
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        for policy_worker in self.policy_workers:
            policy_worker.start()
        for rollout_worker in self.rollout_workers:
            with self._named(rollout_worker):
                rollout_worker.start()

    def wait(self, timeout: float) -> None:
        """Step every group once and answer every request; sleep if the sampler is paused."""
        if self.control.paused:
            time.sleep(timeout)
            return
        self.whole = False
        for rollout_worker in self.rollout_workers:
            with self._named(rollout_worker):
                rollout_worker.advance()
        for policy_worker in self.policy_workers:
            policy_worker.serve()
        self.whole = True

    def state_dict(self) -> dict[str, Any]:
        """The state of the workers outside the shared memory."""
        return {
            "rollout": [[g.state_dict() for g in w.groups] for w in self.rollout_workers],
            "policy": [worker.state_dict() for worker in self.policy_workers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict()`; the shared memory must already be restored. Raises
        StateError."""
        for rollout_worker, groups in zip(self.rollout_workers, state["rollout"], strict=True):
            with self._named(rollout_worker):
                for group, saved in zip(rollout_worker.groups, groups, strict=True):
                    group.load_state_dict(saved)
        for policy_worker, saved in zip(self.policy_workers, state["policy"], strict=True):
            policy_worker.load_state_dict(saved)

    @contextmanager
    def _named(self, worker: RolloutWorker) -> Iterator[None]:
        """Errors of environments that come out of this block name worker, environment and lane."""
        try:
            yield
        except (EnvError, StateError) as error:
            where = place(self._contexts[worker.index])
            raise type(error)(f"{where}: {error}") from error

    def wake(self, groups: list[int]) -> None:
        """Nothing to do, since nobody sleeps here."""

    at_rest = True
    """Always, since nothing happens between two calls."""

    def check(self) -> None:
        """Nothing to do, since errors are raised where they happen."""

    def close(self) -> None:
        for rollout_worker in self.rollout_workers:
            rollout_worker.close()
