"""The policy worker's process: makes the model, then runs the worker."""

from __future__ import annotations

from typing import Any

import cloudpickle
import gymnasium as gym

from sampler import seeds
from sampler.config import SamplerConfig
from sampler.policy_worker.random_actor import RandomActor
from sampler.policy_worker.worker import Actor, PolicyWorker
from sampler.process.bell import Bell
from sampler.process.child import run_child
from sampler.shm.shared import Shared


def make_actor(
    config: SamplerConfig,
    shared: Shared,
    index: int,
    restarts: int,
    observation_space: gym.Space,
    action_space: gym.Space,
    make_model: Any,
) -> Actor:
    """What chooses the actions; torch is imported only if that is a model."""
    if config.inference == "random":
        stream = seeds.sequence(config.seed, seeds.POLICY, index, restarts)
        return RandomActor(shared, action_space, stream)
    from sampler.models.device import choose_device, choose_precision
    from sampler.policy_worker.model_actor import ModelActor

    device = choose_device(config.device)
    return ModelActor(
        make_model(observation_space, action_space),
        shared,
        index,
        observation_space,
        action_space,
        device,
        choose_precision(config.precision, device),
        seeds.integer(config.seed, seeds.POLICY, index, restarts),
    )


def main(
    index: int,
    restarts: int,
    threads: int,
    pickled: bytes,
    shared: Shared,
    device_weights: Any,
    bell: Bell,
    worker_bells: dict[int, Bell],
) -> None:
    """Entry point of the process. `pickled`: configuration, spaces and the model's factory.

    `device_weights`: the published copies on the learner's GPU (a tensor that the processes
    share), or None where they are in the arena.
    """

    def body() -> None:
        config, observation_space, action_space, make_model = cloudpickle.loads(pickled)
        if config.inference == "model":
            import torch

            torch.set_num_threads(threads)
        if device_weights is not None:
            shared.weights.copies = device_weights
        actor = make_actor(
            config, shared, index, restarts, observation_space, action_space, make_model
        )
        PolicyWorker(index, shared, bell, worker_bells, actor).run()

    run_child(
        shared,
        shared.topology.policy_slot(index),
        shared.counters.policy[index],
        lambda: f"policy worker {index}",
        body,
    )
