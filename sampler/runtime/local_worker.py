"""A rollout worker that chooses its own actions: both workers in one process, no signals."""

from __future__ import annotations

from typing import Any

import cloudpickle

from sampler.config import SamplerConfig
from sampler.policy_worker.main import make_actor
from sampler.policy_worker.worker import PolicyWorker
from sampler.process.bell import Bell
from sampler.process.child import run_child
from sampler.rollout_worker.environments import make_lanes
from sampler.rollout_worker.main import place
from sampler.rollout_worker.worker import RolloutWorker
from sampler.shm.counters import Stage
from sampler.shm.shared import Shared


class NoBell(Bell):
    """The bell of somebody in the same process, who looks without being woken."""

    def __init__(self) -> None:
        self.fd = -1

    def ring(self) -> None:
        """Nobody sleeps."""


def main(
    index: int,
    restarts: int,
    for_rollout: bytes,
    for_policy: bytes,
    shared: Shared,
    device_weights: Any,
    bell: Bell,
    learner_bell: Bell,
) -> None:
    """Entry point of the process; the arguments are those of the two workers' own."""
    counters = shared.counters.rollout[index]
    loaded: list[SamplerConfig] = []

    def name() -> str:
        return place(loaded[0], counters, index) if loaded else f"rollout worker {index}"

    def body() -> None:
        config, facts = cloudpickle.loads(for_rollout)
        loaded.append(config)
        _, observation_space, action_space, make_model = cloudpickle.loads(for_policy)
        if config.inference == "model":
            import torch

            torch.set_num_threads(1)
        if device_weights is not None:
            shared.weights.copies = device_weights
        actor = make_actor(
            config, shared, index, restarts, observation_space, action_space, make_model
        )
        silent = NoBell()
        policy_worker = PolicyWorker(index, shared, silent, {index: silent}, actor)
        rollout_worker = RolloutWorker(
            index,
            shared,
            bell,
            silent,
            learner_bell,
            make_lanes(config, facts, index, restarts, shared),
            facts.observation_space,
            facts.frame_skip,
            config.env_name,
        )

        def serve() -> bool:
            counters.enter(Stage.INFERENCE)  # what hangs from here on is the model
            return policy_worker.serve()

        try:
            policy_worker.start()
            rollout_worker.run(serve)
        finally:
            rollout_worker.close()

    run_child(shared, index, counters, name, body)
