"""The policy worker's process: makes the model, then runs the worker."""

from __future__ import annotations

from contextlib import nullcontext

from sampler import seeds
from sampler.policy_worker.random_actor import RandomActor
from sampler.policy_worker.worker import Actor, PolicyWorker
from sampler.worker.context import WorkerContext
from sampler.worker.running import run_worker


def make_actor(context: WorkerContext) -> Actor:
    """The actor that chooses the actions; torch is imported only if it has a model."""
    config, shared = context.config, context.shared
    key = seeds.POLICY, context.index, context.restarts
    if config.inference == "random":
        stream = seeds.sequence(config.seed, *key)
        return RandomActor(shared, context.weights, context.action_space, stream)
    from sampler.models.device import choose_device, choose_precision
    from sampler.models.layers import weights_to_be_loaded
    from sampler.policy_worker.model_actor import ModelActor

    assert context.make_model is not None
    make_model = context.make_model.value
    assert make_model is not None
    observation_space, action_space = context.observation_space, context.action_space
    device = choose_device(config.device)
    # With serial=True the caller's own random stream goes on as if weights were drawn here, too.
    with nullcontext() if config.serial else weights_to_be_loaded():
        model = make_model(observation_space, action_space)
    return ModelActor(
        model,
        shared,
        context.weights,
        context.index,
        observation_space,
        action_space,
        device,
        choose_precision(config.precision, device),
        seeds.integer(config.seed, *key),
    )


def limit_threads(context: WorkerContext) -> None:
    """In a process of its own: give torch the worker's number of threads, if it is used at all."""
    if context.config.inference == "model":
        import torch

        torch.set_num_threads(context.threads)


def main(context: WorkerContext) -> None:
    """Entry point of the process."""
    index, shared = context.index, context.shared

    def work() -> None:
        limit_threads(context)
        PolicyWorker(context, make_actor(context)).run()

    slot, counters = shared.topology.policy_slot(index), shared.counters.policy[index]
    run_worker(shared, slot, counters, lambda: f"policy worker {index}", work)
