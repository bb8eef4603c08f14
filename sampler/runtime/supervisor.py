"""The supervisor: owns the worker processes of one sampler, and a thread that watches them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess

from sampler.config import SamplerConfig
from sampler.errors import ConfigError, EnvError, FastrlError, ModelError, WorkerError, one_line
from sampler.process.launch import end, end_group, start
from sampler.process.patience import Patience
from sampler.process.report import error_of, reworded
from sampler.shm.counters import CounterRow, Stage
from sampler.shm.shared import Shared
from sampler.shm.words import NamedWords

logger = logging.getLogger("fastrl")

WATCH_INTERVAL = 0.2  # seconds between two checks of the heartbeats
STOP_TIMEOUT = 2.0  # seconds that workers get to stop by themselves
FORK_SERVER_DIED = 255  # exit code that multiprocessing gives to all its processes
SEEN_TOGETHER = 2.0  # seconds within which all of them are seen to have ended
FIRST_NOTICE, NEXT_NOTICE = 5.0, 10.0  # seconds of starting until the log says who is waited for
# What may hang, and whose code that is.
HANGING = {
    Stage.STEPPING: ("step or reset", "environment"),
    Stage.INFERENCE: ("inference", "model"),
}


@dataclass
class Worker:
    """One worker process: how it is started, and what belongs to it in shared memory."""

    name: str
    slot: int
    counters: CounterRow
    control: NamedWords
    launch: Callable[[int], BaseProcess]
    """Makes the process, without starting it, given how often it has been restarted."""
    recover: Callable[[], None]
    """Takes back what the dead process held, before the next one is started."""
    environment: str = ""
    """Name of the environment that it runs; "" without one."""
    process: BaseProcess | None = None
    restarts: int = 0
    launched: float = 0.0
    launched_at: int = 0
    """Total steps when it was last launched."""
    last_error: str = ""
    """The report of its last process, without the place of the error."""
    progress: tuple[int, int] = (0, 0)
    """The last heartbeat: when the present stage began, and the lane in it."""
    progress_time: float = 0.0
    hung: str = ""
    """Why the supervisor ended it, if it did."""

    @property
    def place(self) -> str:
        """The worker, with its environment and the lane that it is stepping."""
        if not self.environment:
            return self.name
        return f"{self.name}, env {self.environment}, lane {self.counters['lane']}"

    @property
    def steps(self) -> int:
        """Steps made (by a policy worker: actions chosen) by all its processes so far."""
        return self.counters["steps" if self.environment else "observations"]


class Supervisor:
    """Starts workers, restarts those that fail, and keeps the error when it gives up."""

    def __init__(
        self,
        config: SamplerConfig,
        shared: Shared,
        workers: list[Worker],
        wake: Callable[[], None],
    ):
        """`wake()` is called when something has happened that a waiting learner must see."""
        self.config = config
        self.shared = shared
        self.workers = workers
        self.wake = wake
        self.failure: FastrlError | None = None
        self.restarts = 0
        self._lost = -SEEN_TOGETHER  # when a fork server's death was last counted
        self._patience = Patience(2 * WATCH_INTERVAL)
        self._next_notice = FIRST_NOTICE
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fastrl supervisor", daemon=True)

    def start(self) -> None:
        """Start every worker and begin to watch. They become ready on their own."""
        for worker in self.workers:
            self._launch(worker)
        self._thread.start()

    def _launch(self, worker: Worker) -> None:
        worker.control["ready"] = 0
        worker.control["restarts"] = worker.restarts
        worker.counters["stage"] = Stage.STARTING
        worker.launched = self._patience.seconds
        worker.launched_at = worker.steps
        process = worker.launch(worker.restarts)
        start(process)
        worker.process = process
        worker.control["pid"] = process.pid or 0  # known before the process begins to run

    # ---- watching

    def _watch(self) -> None:
        while not self._stopping.is_set() and self.failure is None:
            sentinels = {w.process.sentinel: w for w in self.workers if w.process is not None}
            ended = connection.wait(list(sentinels), WATCH_INTERVAL)
            if self._stopping.is_set():
                return
            try:
                for sentinel in ended:
                    self._after_death(sentinels[sentinel])  # type: ignore[index]
                self._check_timeouts()
                self._tell_of_start()
            except Exception as error:  # the watcher must not die silently
                if self._stopping.is_set():
                    return  # the sampler was closed meanwhile
                if not isinstance(error, FastrlError):
                    error = WorkerError(f"the supervisor failed: {one_line(error)}")
                self._fail(error)

    def _after_death(self, worker: Worker) -> None:
        process = worker.process
        assert process is not None
        process.join()
        reported = bool(self.shared.errors.size[worker.slot])
        end_group(process)  # its children; and itself, if only its fork server has died
        error = self._diagnose(worker, process.exitcode)
        counts = self._counts(process.exitcode)
        process.close()
        worker.process = None
        never_worked = reported and not worker.control["ready"] and not worker.restarts
        if never_worked or isinstance(error, ConfigError | ModelError):
            self._fail(error)  # a restart would only repeat the error
        elif counts and self.restarts >= self.config.max_restarts:
            limit = f"gave up after {self.config.max_restarts} restarts (max_restarts): {error}"
            self._fail(reworded(error, limit))
        elif reported and self._came_back(worker, error):
            self._fail(reworded(error, f"gave up, for a restart changed nothing: {error}"))
        else:
            if error.traceback_text:
                logger.info("%s\n%s", error, error.traceback_text)
            self.restarts += counts
            worker.restarts += 1
            logger.warning("%s; restart %d of %d", error, self.restarts, self.config.max_restarts)
            worker.recover()
            if self._stopping.is_set():
                return
            self._launch(worker)
            self.wake()

    def _came_back(self, worker: Worker, error: FastrlError) -> bool:
        """Whether a restarted worker reported the same error again before any row was full."""
        line = str(error).removeprefix(worker.place)
        before, worker.last_error = worker.last_error, line
        row = self.shared.spec.steps * self.shared.topology.lanes_per_group
        return line == before and worker.steps - worker.launched_at < row

    def _counts(self, exitcode: int | None) -> bool:
        """Whether a death counts as a failure: all deaths caused by one fork server's are one
        failure."""
        if exitcode != FORK_SERVER_DIED:
            return True
        now = self._patience.look()
        first = now - self._lost >= SEEN_TOGETHER
        if first:
            self._lost = now
        return first

    def _diagnose(self, worker: Worker, exitcode: int | None) -> FastrlError:
        """The error that a dead worker reported, or else a description of how it ended."""
        text, hung = self.shared.errors.take(worker.slot), worker.hung
        worker.hung = ""
        if text:
            return error_of(text, EnvError if worker.environment else WorkerError)
        if hung:
            in_model = worker.counters["stage"] == Stage.INFERENCE
            return WorkerError(hung) if in_model else EnvError(hung)
        how = f"signal {-exitcode}" if exitcode and exitcode < 0 else f"exit code {exitcode}"
        stage = Stage(worker.counters["stage"])
        acting = stage == Stage.INFERENCE
        doing = "choosing actions" if acting else stage.name.lower().replace("_", " ")
        message = f"{worker.place} ended unexpectedly while {doing} ({how})"
        in_environment = worker.environment and stage in (Stage.STARTING, Stage.STEPPING)
        return EnvError(message) if in_environment else WorkerError(message)

    def _fail(self, error: FastrlError) -> None:
        self.failure = error
        self.wake()

    def _check_timeouts(self) -> None:
        now = self._patience.look()
        for worker in self.workers:
            counters = worker.counters
            progress = (counters["stage_since"], counters["lane"] if worker.environment else 0)
            stage, limit = Stage(counters["stage"]), self.config.step_timeout
            if progress != worker.progress or stage not in HANGING:
                worker.progress, worker.progress_time = progress, now
            elif limit is not None and now - worker.progress_time > limit:
                worker.progress_time = now
                what, whose = HANGING[stage]
                worker.hung = (
                    f"{worker.place}: no {what} was finished within step_timeout={limit:g} s; "
                    f"raise it, or correct the {whose}"
                )
                self.kill(worker.slot)
        limit = self.config.start_timeout
        late = [w for w in self.workers if not w.control["ready"] and now - w.launched > limit]
        if any(worker.restarts == 0 for worker in late):
            names = ", ".join(worker.place for worker in late[:3])
            self._fail(
                EnvError(
                    f"{names} not ready after start_timeout={limit:g} s; raise it, or use "
                    "fewer workers"
                )
            )
        for worker in late:
            if worker.restarts:
                worker.hung = f"{worker.place} not ready after start_timeout={limit:g} s"
                self.kill(worker.slot)

    def _tell_of_start(self) -> None:
        """Log which workers are still starting when that takes long."""
        now = self._patience.seconds
        waiting = [w for w in self.workers if not w.control["ready"] and not w.restarts]
        if waiting and now >= self._next_notice:
            self._next_notice = now + NEXT_NOTICE
            more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
            logger.info("still starting after %.0f s: %s%s", now, waiting[0].place, more)

    def kill(self, slot: int) -> None:
        """End the worker with this error slot; the watcher then starts it again."""
        for worker in self.workers:
            if worker.slot == slot and worker.process is not None:
                worker.process.kill()

    def is_alive(self, slot: int) -> bool:
        """Whether the worker with this error slot has a process that runs (or is stopped)."""
        for worker in self.workers:
            if worker.slot == slot and worker.process is not None:
                if worker.process.is_alive():
                    return True
                end_group(worker.process)  # it still runs if only its fork server has died
        return False

    # ---- stopping

    def stop_watching(self) -> None:
        """Expect workers to end from now on. Must be called before they are told to stop."""
        self._stopping.set()

    def stop(self) -> None:
        """End every worker, within `STOP_TIMEOUT` seconds and a little; idempotent."""
        self._stopping.set()
        workers, self.workers = self.workers, []  # they refer to this object's owner
        try:
            if self._thread.is_alive() and threading.current_thread() is not self._thread:
                self._thread.join(STOP_TIMEOUT)
            deadline = time.monotonic() + STOP_TIMEOUT
            for worker in workers:
                if worker.process is not None:
                    worker.process.join(max(0.0, deadline - time.monotonic()))
        finally:  # even if KeyboardInterrupt ends the wait
            for worker in workers:
                process, worker.process = worker.process, None
                if process is not None:
                    end(process, STOP_TIMEOUT)
