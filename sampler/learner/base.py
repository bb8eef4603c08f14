"""The base of all learners: how a batch changes a model, how weights are published, what is
saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sampler.errors import ConfigError
from sampler.learner.config import LearnerConfig
from sampler.learner.functional.schedules import LinearSchedule
from sampler.learner.gradient_descent import GradientDescent, make_optimiser
from sampler.learner.guards import FiniteGuard, first_non_finite
from sampler.learner.metrics import MetricMeans
from sampler.learner.precision import autocast, has_convolutions, resolve_precision
from sampler.models.device import choose_device
from sampler.models.weights import renamed

if TYPE_CHECKING:
    from sampler.batch import SequenceBatch
    from sampler.config import SamplerConfig
    from sampler.sampler import Sampler

__all__ = ["LEARNER_STATE", "Explores", "Learner", "LearnerConfig", "Publish", "Replays"]

Publish = Callable[[], "int | None"]
"""Sends the model's weights to the policy workers; may return their version."""

LEARNER_STATE = ("algorithm", "model", "optimiser", "guard", "batches", "updates", "random")
"""Keys of every learner's state."""


class Learner(ABC):
    """A model, its optimiser and how one batch changes them. Algorithms define `update`.

    model: trained in place, and moved to `device`. observation_space, action_space: as the model
    sees them (`Sampler.observation_space`, `.action_space`). device: auto, cpu, cuda or cuda:N.
    precision: of the model's forward pass; auto is bfloat16 autocast for models with convolutions
    where the device has it natively, float32 otherwise. Weights, losses and the optimiser are
    float32 always.

    Abilities that only some learners have are separate interfaces: `Explores` and `Replays`.
    """

    sync: ClassVar[bool] = False
    """Whether the algorithm needs `SamplerConfig.sync`: batches made with the newest weights."""

    def __init__(
        self,
        model: nn.Module,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: LearnerConfig,
        device: str = "auto",
        precision: str = "auto",
    ) -> None:
        self.config = config
        self.observation_space = observation_space
        self.action_space = action_space
        self.device = choose_device(device)
        self.dtype = resolve_precision(precision, self.device, model)
        if has_convolutions(model):
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model: Any = model.to(self.device)
        self.descent = GradientDescent(
            self.model,
            make_optimiser(self.model, config),
            config.max_grad_norm,
            config.max_non_finite,
        )
        self.metrics = MetricMeans()
        self.random = torch.Generator().manual_seed(config.seed)
        self.version = 0
        """Version of the weights last published."""
        self.batches = 0
        """Batches seen."""
        self.set_progress(0, None)

    @classmethod
    def for_sampler(
        cls, sampler: Sampler, config: Any, device: str = "auto", precision: str = "auto"
    ) -> Learner:
        """A learner of the sampler's own model."""
        assert sampler.model is not None
        spaces = sampler.observation_space, sampler.action_space
        return cls(sampler.model, *spaces, config, device, precision)

    # ---- what an algorithm defines

    @abstractmethod
    def update(self, batch: SequenceBatch, publish: Publish) -> dict[str, float]:
        """Learn from one batch, calling `publish` whenever new weights should be sent to policy
        workers.

        Returns metrics by name (losses/..., charts/..., perf/...). Raises NonFiniteError.
        """

    def check_sampler(self, config: SamplerConfig) -> None:
        """Raise ConfigError if batches of a sampler with these settings cannot be learned from."""
        if self.sync and not config.sync:
            raise ConfigError(
                f"{type(self).__name__} learns from the newest policy's own steps; set sync=True"
            )

    # ---- parts of an update

    @property
    def optimiser(self) -> torch.optim.Optimizer:
        """The optimiser's steps, with clipping and the guard."""
        return self.descent.optimiser

    @property
    def guard(self) -> FiniteGuard:
        """The guard that counts skipped optimiser steps."""
        return self.descent.guard

    @property
    def updates(self) -> int:
        """Optimiser steps made."""
        return self.descent.steps

    @property
    def learning_rate(self) -> float:
        """The optimiser's present step size."""
        return self.descent.learning_rate

    def set_progress(self, steps: int, total_steps: int | None) -> None:
        """Set the learning rate for `steps` of `total_steps` agent steps (None: no end)."""
        rate = self.config.learning_rate
        if self.config.anneal_learning_rate and total_steps:
            rate = LinearSchedule(rate, 0.0, total_steps)(steps)
        self.descent.learning_rate = rate

    def autocast(self) -> torch.autocast:
        """The context for the model's forward pass."""
        return autocast(self.device, self.dtype)

    def step(self, loss: Tensor, suspects: Mapping[str, Tensor]) -> bool:
        """One optimiser step down the gradient of `loss` (a scalar); returns whether it was made.

        See `GradientDescent.step`.
        """
        norm = self.descent.step(loss, suspects)
        if norm is None:
            return False
        self.metrics.add({"losses/grad_norm": norm})
        return True

    def publish(self, publish: Publish) -> None:
        """Publish the weights and remember their version."""
        version = publish()
        if version is not None:
            self.version = version

    # ---- state

    def non_finite_weight(self) -> str | None:
        """The name of the model's first parameter or buffer that is not finite, or None. A model
        with one is not saved."""
        return first_non_finite(self.model.state_dict().items())

    @classmethod
    def saved_name(cls) -> str:
        """The algorithm's name in checkpoints."""
        return cls.__name__

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain tensors, numbers and strings."""
        state: dict[str, Any] = {
            "algorithm": self.saved_name(),
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "guard": self.guard.state_dict(),
            "batches": self.batches,
            "updates": self.updates,
            "random": {"shuffle": self.random.get_state(), "torch": torch.get_rng_state()},
        }
        if self.device.type == "cuda":
            state["random"]["cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`, bit for bit. Raises ConfigError if it does not fit."""
        if state["algorithm"] != self.saved_name():
            raise ConfigError(
                f"the checkpoint is of {state['algorithm']}, not {type(self).__name__}; "
                "choose the same algorithm"
            )
        try:
            self.model.load_state_dict(renamed(state["model"], self.model.state_dict()))
            self.optimiser.load_state_dict(state["optimiser"])
        except (RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"the checkpoint does not fit this model: {reason[:200]}; use the run's settings"
            ) from error
        self.guard.load_state_dict(state["guard"])
        self.batches = state["batches"]
        self.descent.steps = state["updates"]
        self.random.set_state(state["random"]["shuffle"].cpu())
        torch.set_rng_state(state["random"]["torch"].cpu())
        if self.device.type == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), self.device)


class Explores(ABC):
    """A learner that sets the sampler's probability of random actions, as its policy does not
    explore."""

    @abstractmethod
    def exploration(self, lanes: int, steps: int) -> np.ndarray:
        """Probability of a random action in every lane after `steps` agent steps, float [lanes]."""


class Replays(ABC):
    """A learner that learns repeatedly from stored earlier batches."""

    @abstractmethod
    def prepare(self, sampler: Sampler) -> None:
        """Reserve memory for the sampler's batches before the first one comes.

        Raises ConfigError if there is not enough.
        """

    @property
    @abstractmethod
    def saved_replay_bytes(self) -> int:
        """Bytes that a full replay takes in every checkpoint; 0 where none is saved."""
