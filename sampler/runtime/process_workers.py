"""The worker processes of a sampler: how each is started, and how its death is cleaned up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

from sampler.policy_worker import main as policy_process
from sampler.process.resources import spare_threads
from sampler.rollout_worker import main as rollout_process
from sampler.runtime import local_worker
from sampler.runtime.assembly import Assembly
from sampler.runtime.start_methods import inference_processes, worker_processes
from sampler.runtime.supervisor import Supervisor, Worker
from sampler.shm.control import STOP
from sampler.shm.counters import Stage
from sampler.shm.signals import ANSWERED, ASKED, ROW, STEP, TOKEN
from sampler.worker.context import WorkerContext

NOT_WRITING = (Stage.STARTING, Stage.WAITING, Stage.STOPPED)  # into rows
BATCH_TIMEOUT = 5.0  # seconds for a policy worker to finish its present batch


@dataclass(frozen=True)
class Launch:
    """How the process of one worker is made."""

    name: str
    main: Callable[[WorkerContext], None]
    context: WorkerContext
    method: Any
    """The multiprocessing context."""

    def __call__(self, restarts: int) -> BaseProcess:
        """A process, not started yet, for a worker that was restarted that many times."""
        given = replace(self.context, restarts=restarts)
        process: BaseProcess = self.method.Process(
            target=self.main, name=self.name, daemon=True, args=(given,)
        )
        return process


class ProcessWorkers:
    """Rollout and policy workers in processes of their own, under a supervisor."""

    def __init__(self, assembly: Assembly):
        """Raises ConfigError where the environment or the model cannot be sent to a process."""
        self.assembly = assembly
        self.shared = assembly.shared
        self.topology = assembly.shared.topology
        self.config = config = assembly.config
        assembly.setup.pack()
        assembly.make_model.pack()
        self._threads = spare_threads(config.workers, config.policy_workers)
        workers = [self._policy_worker(index) for index in range(config.policy_workers)]
        workers += [self._rollout_worker(index) for index in range(config.workers)]
        self.supervisor = Supervisor(config, self.shared, workers, assembly.bell.ring)

    def _rollout_worker(self, index: int) -> Worker:
        local = self.config.policy_workers == 0
        for_worker = self.assembly.for_local_worker if local else self.assembly.for_rollout_worker
        launch = Launch(
            f"fastrl rollout worker {index}",
            local_worker.main if local else rollout_process.main,
            for_worker(index),
            worker_processes(self.config.start_method),
        )
        return Worker(
            name=f"rollout worker {index}",
            slot=index,
            counters=self.shared.counters.rollout[index],
            control=self.shared.control.workers[index],
            launch=launch,
            recover=partial(self._recover_rollout, index),
            environment=self.config.env_name,
        )

    def _policy_worker(self, index: int) -> Worker:
        random = self.config.inference == "random"
        launch = Launch(
            f"fastrl policy worker {index}",
            policy_process.main,
            self.assembly.for_policy_worker(index, self._threads),
            worker_processes(self.config.start_method) if random else inference_processes(),
        )
        slot = self.topology.policy_slot(index)
        return Worker(
            name=f"policy worker {index}",
            slot=slot,
            counters=self.shared.counters.policy[index],
            control=self.shared.control.workers[slot],
            launch=launch,
            recover=lambda: None,  # requests wait for the next one; lost states are refused by it
        )

    def _recover_rollout(self, index: int) -> None:
        """Take back the rows of a dead rollout worker, and its open requests."""
        groups = self.topology.groups_of(index)
        requests = self.shared.requests[groups.start : groups.stop]
        requests[:, ANSWERED] = requests[:, ASKED]
        self._wait_for_batch_end(self.topology.policy_of(index))
        lost = sum(self._steps_begun(group) for group in groups)
        self.shared.counters.rollout[index].add("lost_steps", lost)
        self.wake(self.shared.tokens.reclaim(groups))

    def _steps_begun(self, group: int) -> int:
        """Real steps in the rows that a group has not finished."""
        request, tokens = self.shared.requests[group], self.shared.tokens
        token = int(request[TOKEN])
        if token not in tokens.held_by(group):
            return 0  # it was given rows but died before beginning them
        first = self.shared.spec.overlap if request[ROW] else 0
        return int(self.shared.store.block(token)["mask"][:, first : request[STEP]].sum())

    def _wait_for_batch_end(self, policy: int) -> None:
        """Wait until the policy worker no longer writes into rows on behalf of a dead worker."""
        counters, slot = self.shared.counters.policy[policy], self.topology.policy_slot(policy)
        batches = counters["batches"]
        deadline = time.monotonic() + BATCH_TIMEOUT
        while self.supervisor.is_alive(slot):
            time.sleep(0.001)
            if counters["batches"] != batches or counters["stage"] in NOT_WRITING:
                return
            if time.monotonic() > deadline:
                self.supervisor.kill(slot)

    def start(self) -> None:
        self.supervisor.start()

    def wake(self, groups: list[int]) -> None:
        """Ring the rollout workers of groups that now have rows."""
        for worker in {group // self.topology.groups_per_worker for group in groups}:
            self.assembly.worker_bells[worker].ring()

    def wait(self, timeout: float) -> None:
        """Sleep until a worker has finished rows, something went wrong, or the time is up."""
        self.assembly.bell.wait(timeout)

    def check(self) -> None:
        """Raise the error that made the supervisor give up, if one did."""
        if self.supervisor.failure is not None:
            raise self.supervisor.failure

    @property
    def at_rest(self) -> bool:
        """Whether every rollout worker has obeyed `PAUSE`."""
        return all(row["stage"] == Stage.PAUSED for row in self.shared.counters.rollout)

    @property
    def restarts(self) -> int:
        return self.supervisor.restarts

    def close(self) -> None:
        self.supervisor.stop_watching()
        self.shared.control.words[STOP] = 1
        for bell in (*self.assembly.worker_bells, *self.assembly.policy_bells):
            bell.ring()
        self.supervisor.stop()
