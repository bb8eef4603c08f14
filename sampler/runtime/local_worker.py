"""A rollout worker that chooses its own actions: both workers in one process, no signals."""

from __future__ import annotations

from sampler.policy_worker.main import limit_threads, make_actor
from sampler.policy_worker.worker import PolicyWorker
from sampler.rollout_worker.environments import make_lanes
from sampler.rollout_worker.main import place
from sampler.rollout_worker.worker import RolloutWorker
from sampler.shm.counters import Stage
from sampler.worker.context import WorkerContext
from sampler.worker.running import run_worker


def main(context: WorkerContext) -> None:
    """Entry point of the process. The two workers are each other's peers, with silent bells."""
    index, shared = context.index, context.shared
    counters = shared.counters.rollout[index]

    def work() -> None:
        limit_threads(context)
        policy_worker = PolicyWorker(context, make_actor(context))
        rollout_worker = RolloutWorker(context, make_lanes(context))

        def serve() -> bool:
            counters.enter(Stage.INFERENCE)  # whatever hangs from here on is the model
            return policy_worker.serve()

        try:
            policy_worker.start()
            rollout_worker.run(serve)
        finally:
            rollout_worker.close()

    run_worker(shared, index, counters, lambda: place(context), work)
