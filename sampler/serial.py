"""All workers in the calling process, in a fixed order: the same seed gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sampler.assembly import Assembly
from sampler.errors import EnvError
from sampler.policy_worker.process import make_actor
from sampler.policy_worker.worker import PolicyWorker
from sampler.rollout_worker.process import make_lanes, place
from sampler.rollout_worker.worker import RolloutWorker


class SerialWorkers:
    """The same workers as in processes of their own, called in turn."""

    restarts = 0

    def __init__(self, assembly: Assembly):
        self.config = config = assembly.config
        shared, facts = assembly.shared, assembly.facts
        self.rollout_workers = [
            RolloutWorker(
                index,
                shared,
                bell,
                assembly.policy_bell_of(index),
                assembly.bell,
                make_lanes(config, facts, index, 0, shared),
                facts.observation_space,
                facts.frame_skip,
            )
            for index, bell in enumerate(assembly.worker_bells)
        ]
        self.policy_workers = [
            PolicyWorker(
                index,
                shared,
                bell,
                assembly.bells_served_by(index),
                make_actor(
                    config,
                    shared,
                    index,
                    0,
                    assembly.observation_space,
                    assembly.action_space,
                    assembly.parts.factory if assembly.parts else None,
                ),
            )
            for index, bell in enumerate(assembly.policy_bells)
        ]

    def start(self) -> None:
        for policy_worker in self.policy_workers:
            policy_worker.start()
        for rollout_worker in self.rollout_workers:
            with self._named(rollout_worker):
                rollout_worker.start()

    def wait(self, timeout: float) -> None:
        """Step every group once and answer every request."""
        for rollout_worker in self.rollout_workers:
            with self._named(rollout_worker):
                rollout_worker.advance()
        for policy_worker in self.policy_workers:
            policy_worker.serve()

    @contextmanager
    def _named(self, worker: RolloutWorker) -> Iterator[None]:
        """Errors of environments that come out of this block name worker, environment and lane."""
        try:
            yield
        except EnvError as error:
            where = place(self.config, worker.counters, worker.index)
            raise EnvError(f"{where}: {error}") from error

    def wake(self, groups: list[int]) -> None:
        """Nobody sleeps here."""

    def check(self) -> None:
        """Errors are raised where they happen."""

    def close(self) -> None:
        for rollout_worker in self.rollout_workers:
            rollout_worker.close()
