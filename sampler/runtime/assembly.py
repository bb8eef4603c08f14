"""Builds everything that a sampler's processes need from a configuration."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from sampler import seeds
from sampler.config import SamplerConfig
from sampler.envs.facts import EnvironmentFacts
from sampler.errors import ConfigError, one_line
from sampler.process.bell import Bell, SilentBell
from sampler.process.parcel import Parcel
from sampler.process.resources import check_limits
from sampler.runtime.inspection import inspect
from sampler.shm.shared import Shared, Topology
from sampler.shm.store import ArraySpec, StoreSpec
from sampler.shm.weights import WeightStore
from sampler.spaces import leaves, stack_frames
from sampler.worker.context import ModelFactory, WorkerContext

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ModelParts:
    """The caller's own instance of the model, and its facts that the store depends on."""

    model: nn.Module
    factory: ModelFactory
    outputs: dict[str, tuple[int, ...]]
    state_shape: tuple[int, ...]
    inputs: tuple[str, ...]
    weight_bytes: int


@dataclass(frozen=True)
class Assembly:
    """The parts of one sampler, whichever way its workers are run."""

    config: SamplerConfig
    facts: EnvironmentFacts
    observation_space: gym.Space
    """As the model sees it: frames stacked."""
    action_space: gym.Space
    parts: ModelParts | None
    """None for random actions."""
    spec: StoreSpec
    shared: Shared
    weights: WeightStore
    device_weights: Any
    """Published weights on the GPU, int64 [2, words]; None where they are in the arena."""
    bell: Bell
    """The learner's bell; the others are numbered like their workers."""
    worker_bells: list[Bell]
    policy_bells: list[Bell]
    setup: Parcel[tuple[SamplerConfig, EnvironmentFacts]]
    """What every worker needs, pickled once for all of them."""
    make_model: Parcel[ModelFactory | None]
    """The same for all that choose actions."""

    @property
    def model_inputs(self) -> tuple[str, ...]:
        return self.parts.inputs if self.parts else ("obs",)

    def for_rollout_worker(self, index: int) -> WorkerContext:
        """The context of a rollout worker whose actions a policy worker chooses."""
        policy = self.shared.topology.policy_of(index)
        return WorkerContext(
            index,
            self.shared,
            self.setup,
            bell=self.worker_bells[index],
            peer_bells={policy: self.policy_bells[policy]},
            learner_bell=self.bell,
        )

    def for_policy_worker(self, index: int, threads: int = 1) -> WorkerContext:
        """The context of a policy worker."""
        topology = self.shared.topology
        return WorkerContext(
            index,
            self.shared,
            self.setup,
            bell=self.policy_bells[index],
            peer_bells={
                worker: bell
                for worker, bell in enumerate(self.worker_bells)
                if topology.policy_of(worker) == index
            },
            make_model=self.make_model,
            device_weights=self.device_weights,
            threads=threads,
        )

    def for_local_worker(self, index: int) -> WorkerContext:
        """The context of a rollout worker that chooses its own actions."""
        return replace(
            self.for_rollout_worker(index),
            peer_bells={index: SilentBell()},  # both workers have this index
            make_model=self.make_model,
            device_weights=self.device_weights,
        )

    def close(self) -> None:
        """Close every descriptor; memory that a batch still refers to stays until the batch is
        gone."""
        for bell in (self.bell, *self.worker_bells, *self.policy_bells):
            bell.close()
        self.shared.close()


def assemble(
    config: SamplerConfig, factory: ModelFactory | None, facts: EnvironmentFacts | None = None
) -> Assembly:
    """Look at the environment, unless that has been done (`facts`), make the model, and allocate
    the shared memory."""
    check_limits(config.workers + config.policy_workers, bells=1 + config.workers + config.actors)
    facts = facts or inspect(config)
    if facts.vector_lanes not in (0, config.lanes_per_group):
        raise ConfigError(
            f"the vector environment has {facts.vector_lanes} lanes but a group has "
            f"{config.lanes_per_group}; set envs_per_worker to groups x {facts.vector_lanes}"
        )
    observation_space = stack_frames(facts.observation_space, facts.frame_stack)
    parts = None
    if config.inference == "model":
        parts = _prepare_model(config.seed, factory, observation_space, facts.action_space)
    spec = _store_spec(config, facts, parts)
    topology = Topology(config.workers, config.lane_groups, config.lanes_per_group, config.actors)
    with ExitStack() as opened:  # closes what was made if the rest fails
        weight_bytes = parts.weight_bytes if parts else 0
        shared = Shared(spec, topology, weight_bytes, config.sync, len(config.info_keys))
        opened.callback(shared.close)
        device_weights = _prepare_gpu(config, shared) if parts else None
        bells: list[Bell] = []
        for _ in range(1 + config.workers + config.actors):
            bells.append(Bell())
            opened.callback(bells[-1].close)
        assembly = Assembly(
            config,
            facts,
            observation_space,
            facts.action_space,
            parts,
            spec,
            shared,
            WeightStore(shared.arena, device_weights),
            device_weights,
            bells[0],
            bells[1 : 1 + config.workers],
            bells[1 + config.workers :],
            Parcel((config, facts), f"env {config.env_name}"),
            Parcel(parts.factory if parts else None, "the model"),
        )
        opened.pop_all()
    return assembly


def _store_spec(
    config: SamplerConfig, facts: EnvironmentFacts, parts: ModelParts | None
) -> StoreSpec:
    inputs = parts.inputs if parts else ()
    return StoreSpec(
        buffers=config.batch_buffers,
        rows=config.batch,
        steps=config.rollout,
        overlap=config.overlap,
        rows_per_token=config.lanes_per_group,
        observations=_array_specs(facts.observation_space, "observation", "obs"),
        actions=_array_specs(facts.action_space, "action", "actions"),
        frame_stack=facts.frame_stack,
        action_mask_size=facts.action_mask_size,
        outputs={"log_probs": ()} | (parts.outputs if parts else {}),
        state_shape=parts.state_shape if parts else (0,),
        previous="previous_actions" in inputs or "previous_rewards" in inputs,
    )


def _prepare_gpu(config: SamplerConfig, shared: Shared) -> Any:
    """For inference on a GPU, pin the arena and keep published weights in the GPU's memory.

    Returns the copies of the weights there, or None.
    """
    import torch

    from sampler.models.device import choose_device, pin_arena

    device = choose_device(config.device)
    if device.type != "cuda":
        return None
    pin_arena(shared.arena.memory)
    shape = WeightStore(shared.arena).copies.shape
    return torch.zeros(shape, dtype=torch.int64, device=device)


def _array_specs(space: gym.Space, kind: str, name: str) -> tuple[ArraySpec, ...]:
    found = leaves(space, name)
    if not found:
        raise ConfigError(f"the {kind} space {space} has no entries; give it at least one")
    for leaf in found:
        if 0 in leaf.shape:
            raise ConfigError(f"{leaf.name}: {leaf.space} holds no numbers; leave it out")
    return tuple(ArraySpec(leaf.name, leaf.shape, leaf.dtype) for leaf in found)


def _prepare_model(
    seed: int, factory: ModelFactory | None, observation_space: gym.Space, action_space: gym.Space
) -> ModelParts:
    import torch

    from sampler.models import as_policy_model, make_model, model_outputs
    from sampler.shm.parameters import ParameterBlock

    chosen: Any = factory or make_model
    if isinstance(chosen, torch.nn.Module) or not callable(chosen):
        raise ConfigError(
            f"model is a {type(chosen).__name__}, not a factory; pass a function "
            "make_model(observation_space, action_space) that returns it"
        )

    def make(observations: gym.Space, actions: gym.Space) -> Any:
        return as_policy_model(chosen(observations, actions))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds.integer(seed, seeds.MODEL))
        try:
            model = make(observation_space, action_space)
        except (MemoryError, RuntimeError) as error:
            if "allocate" not in str(error):
                raise
            raise ConfigError(
                f"the model of {observation_space} does not fit into memory ({one_line(error)}); "
                "make its layers or the observations smaller"
            ) from error
    return ModelParts(
        model,
        make,
        model_outputs(model, observation_space, action_space),
        tuple(model.initial_state(1).shape[1:]),
        tuple(getattr(model, "inputs", ("obs",))),
        ParameterBlock(model).nbytes,
    )
