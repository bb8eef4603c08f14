"""The rollout worker's process: makes the environments, then runs the worker."""

from __future__ import annotations

from sampler.rollout_worker.environments import make_lanes
from sampler.rollout_worker.worker import RolloutWorker
from sampler.worker.context import WorkerContext
from sampler.worker.running import run_worker


def place(context: WorkerContext) -> str:
    """Where an error happened: worker, environment, and the lane last stepped or reset."""
    worker = f"rollout worker {context.index}"
    if not context.setup.opened:  # the environments are not made yet
        return worker
    lane = context.shared.counters.rollout[context.index]["lane"]
    return f"{worker}, env {context.config.env_name}, lane {lane}"


def main(context: WorkerContext) -> None:
    """Entry point of the process."""
    index, shared = context.index, context.shared

    def work() -> None:
        worker = RolloutWorker(context, make_lanes(context))
        try:
            worker.run()
        finally:
            worker.close()

    run_worker(shared, index, shared.counters.rollout[index], lambda: place(context), work)
