"""The worker processes of a sampler: how each is started, and what its death leaves to clean up."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from sampler.policy_worker import main as policy_process
from sampler.process.launch import context, pickled
from sampler.process.resources import spare_threads
from sampler.rollout_worker import main as rollout_process
from sampler.runtime import local_worker
from sampler.runtime.assembly import Assembly
from sampler.runtime.supervisor import Supervisor, Worker
from sampler.shm.counters import Stage
from sampler.shm.signals import ANSWERED, ASKED, ROW, STEP, TOKEN

QUIET = (Stage.STARTING, Stage.WAITING, Stage.STOPPED)  # stages in which no row is written
QUIET_TIMEOUT = 5.0  # seconds for a policy worker to finish the batch that it is at


class ProcessWorkers:
    """Rollout and policy workers in processes of their own, under a supervisor."""

    def __init__(self, assembly: Assembly):
        self.assembly = assembly
        self.shared = assembly.shared
        self.topology = assembly.shared.topology
        config = assembly.config
        self._rollout_context = context(config.start_method)
        # A policy worker that imports torch starts from a clean process, which CUDA needs.
        random = config.inference == "random"
        self._policy_context = self._rollout_context if random else context("spawn")
        self._for_rollout = pickled((config, assembly.facts), f"env {config.env_name}")
        factory = assembly.parts.factory if assembly.parts else None
        self._for_policy = pickled(
            (config, assembly.observation_space, assembly.action_space, factory), "the model"
        )
        self._inference_threads = spare_threads(config.workers, config.policy_workers)
        workers = [self._policy_worker(index) for index in range(config.policy_workers)]
        workers += [self._rollout_worker(index) for index in range(config.workers)]
        self.supervisor = Supervisor(config, self.shared, workers, assembly.bell.ring)

    def _rollout_worker(self, index: int) -> Worker:
        return Worker(
            name=f"rollout worker {index}",
            slot=index,
            counters=self.shared.counters.rollout[index],
            launch=partial(self._launch_rollout, index),
            recover=partial(self._recover_rollout, index),
            environment=self.assembly.config.env_name,
        )

    def _policy_worker(self, index: int) -> Worker:
        return Worker(
            name=f"policy worker {index}",
            slot=self.topology.policy_slot(index),
            counters=self.shared.counters.policy[index],
            launch=partial(self._launch_policy, index),
            recover=lambda: None,  # requests wait for the next one; lost states are refused by it
        )

    def _launch_rollout(self, index: int, restarts: int) -> Any:
        if self.assembly.config.policy_workers == 0:
            return self._launch_local(index, restarts)
        return self._rollout_context.Process(
            target=rollout_process.main,
            name=f"fastrl rollout worker {index}",
            daemon=True,
            args=(
                index,
                restarts,
                self._for_rollout,
                self.shared,
                self.assembly.worker_bells[index],
                self.assembly.policy_bell_of(index),
                self.assembly.bell,
            ),
        )

    def _launch_local(self, index: int, restarts: int) -> Any:
        return self._rollout_context.Process(
            target=local_worker.main,
            name=f"fastrl rollout worker {index}",
            daemon=True,
            args=(
                index,
                restarts,
                self._for_rollout,
                self._for_policy,
                self.shared,
                self.assembly.device_weights,
                self.assembly.worker_bells[index],
                self.assembly.bell,
            ),
        )

    def _launch_policy(self, index: int, restarts: int) -> Any:
        return self._policy_context.Process(
            target=policy_process.main,
            name=f"fastrl policy worker {index}",
            daemon=True,
            args=(
                index,
                restarts,
                self._inference_threads,
                self._for_policy,
                self.shared,
                self.assembly.device_weights,
                self.assembly.policy_bells[index],
                self.assembly.bells_served_by(index),
            ),
        )

    def _recover_rollout(self, index: int) -> None:
        """Take back the rows of a dead rollout worker, and the requests it left."""
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
            return 0  # it was given rows, but died before it began them
        first = self.shared.spec.overlap if request[ROW] else 0
        return int(self.shared.store.block(token)["mask"][:, first : request[STEP]].sum())

    def _wait_for_batch_end(self, policy: int) -> None:
        """Wait until the policy worker no longer writes into rows on behalf of a dead worker."""
        counters, slot = self.shared.counters.policy[policy], self.topology.policy_slot(policy)
        batches = counters["batches"]
        deadline = time.monotonic() + QUIET_TIMEOUT
        while self.supervisor.is_alive(slot):
            time.sleep(0.001)
            if counters["batches"] != batches or counters["stage"] in QUIET:
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
    def restarts(self) -> int:
        return self.supervisor.restarts

    def close(self) -> None:
        self.supervisor.stop_watching()
        self.shared.counters.learner["stop"] = 1
        for bell in (*self.assembly.worker_bells, *self.assembly.policy_bells):
            bell.ring()
        self.supervisor.stop()
