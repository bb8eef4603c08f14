"""The rollout worker's process: makes the environments, then runs the worker."""

from __future__ import annotations

import cloudpickle

from sampler.config import SamplerConfig
from sampler.process.bell import Bell
from sampler.process.child import run_child
from sampler.rollout_worker.environments import make_lanes
from sampler.rollout_worker.worker import RolloutWorker
from sampler.shm.counters import CounterRow
from sampler.shm.shared import Shared


def place(config: SamplerConfig, counters: CounterRow, worker: int) -> str:
    """Where an error happened: worker, environment, and the lane last stepped or reset."""
    return f"rollout worker {worker}, env {config.env_name}, lane {counters['lane']}"


def main(
    index: int,
    restarts: int,
    pickled: bytes,
    shared: Shared,
    bell: Bell,
    policy_bell: Bell,
    learner_bell: Bell,
) -> None:
    """Entry point of the process. `pickled`: the configuration and the environment's facts."""
    counters = shared.counters.rollout[index]
    loaded: list[SamplerConfig] = []

    def name() -> str:
        return place(loaded[0], counters, index) if loaded else f"rollout worker {index}"

    def body() -> None:
        config, facts = cloudpickle.loads(pickled)
        loaded.append(config)
        lanes = make_lanes(config, facts, index, restarts, shared)
        worker = RolloutWorker(
            index,
            shared,
            bell,
            policy_bell,
            learner_bell,
            lanes,
            facts.observation_space,
            facts.frame_skip,
            config.env_name,
        )
        try:
            worker.run()
        finally:
            worker.close()

    run_child(shared, index, counters, name, body)
