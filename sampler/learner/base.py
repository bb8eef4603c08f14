"""What every learner shares: device and precision, the optimiser step, guards, counters, state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sampler.errors import ConfigError
from sampler.learner.functional.optim import RMSPropTF
from sampler.learner.functional.schedules import LinearSchedule
from sampler.learner.guards import FiniteGuard, first_non_finite
from sampler.learner.metrics import MetricMeans
from sampler.models.device import choose_device, has_native_bfloat16
from sampler.models.weights import renamed

if TYPE_CHECKING:
    from sampler.batch import SequenceBatch
    from sampler.config import SamplerConfig
    from sampler.sampler import Sampler

Publish = Callable[[], "int | None"]
"""Hands the model's weights to the policy workers; may return their version."""

LEARNER_STATE = ("algorithm", "model", "optimiser", "guard", "batches", "updates", "random")
"""What every learner's state holds."""


@dataclass(frozen=True)
class LearnerConfig:
    """Settings that every algorithm has. Raises ConfigError for one that cannot work."""

    learning_rate: float = 3e-4
    """Step size of the optimiser at the start."""
    anneal_learning_rate: bool = False
    """Lower the learning rate linearly to 0 at the last step."""
    optimiser: Literal["adam", "rmsprop", "rmsprop_tf"] = "adam"
    """rmsprop_tf is TensorFlow's form: epsilon inside the root, the mean square starting at 1."""
    epsilon: float = 1e-8
    """Added to the optimiser's denominator."""
    rmsprop_decay: float = 0.99
    """Decay per update of RMSProp's mean square."""
    rmsprop_momentum: float = 0.0
    """Momentum of RMSProp's steps."""
    rmsprop_centered: bool = False
    """Divide by the gradients' standard deviation, not by their root mean square."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this norm over all parameters; 0: never."""
    gamma: float = 0.99
    """Discount per step."""
    max_non_finite: int = 10
    """Updates in a row with a non-finite loss or gradient after which the run stops."""
    seed: int = 0
    """Seed for shuffling minibatches."""

    def __post_init__(self) -> None:
        check_range(self, ("learning_rate", "epsilon"), above=0.0, most=1e3)
        check_range(self, ("max_grad_norm",), least=0.0)
        check_range(self, ("seed",), least=0, most=2**63 - 1)
        check_range(self, ("gamma", "rmsprop_decay", "rmsprop_momentum"), least=0.0, most=1.0)
        check_range(self, ("max_non_finite",), least=1)
        if self.optimiser not in ("adam", "rmsprop", "rmsprop_tf"):
            raise ConfigError(
                f"optimiser={self.optimiser!r} is not one of adam, rmsprop, rmsprop_tf"
            )

    def rows(self, rollout: int, overlap: int) -> dict[str, int]:
        """`rollout` and `overlap` of the sampler: as given, or as the algorithm needs them."""
        return {"rollout": rollout, "overlap": overlap}


def check_range(
    config: object,
    names: tuple[str, ...],
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> None:
    """Raise ConfigError unless every named field of `config` is a number within the bounds."""
    for name in names:
        value = getattr(config, name)
        if above is not None and not value > above:
            raise ConfigError(f"{name}={value} must be greater than {above:g}")
        if least is not None and not value >= least:
            raise ConfigError(f"{name}={value} must be at least {least:g}")
        if most is not None and not value <= most:
            raise ConfigError(f"{name}={value} must be at most {most:g}")


class Learner:
    """A model, its optimiser and how one batch changes them. Algorithms define `update`.

    model: trained in place, and moved to `device`. observation_space, action_space: as the model
    sees them (`Sampler.observation_space`, `.action_space`). device: auto, cpu, cuda or cuda:N.
    precision: of the model's forward pass; auto is bfloat16 autocast for models with convolutions
    where the device has it natively, float32 otherwise. Weights, losses and the optimiser are
    float32 always.
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
        if _has_convolutions(model):
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model: Any = model.to(self.device)
        self.parameters = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.optimiser = make_optimiser(list(self.parameters.values()), config)
        self.guard = FiniteGuard(config.max_non_finite)
        self.metrics = MetricMeans()
        self.random = torch.Generator().manual_seed(config.seed)
        self.version = 0
        """Version of the weights last published."""
        self.batches = 0
        """Batches seen."""
        self.updates = 0
        """Optimiser steps made."""
        self.set_progress(0, None)

    @classmethod
    def for_sampler(
        cls, sampler: Sampler, config: Any, device: str = "auto", precision: str = "auto"
    ) -> Learner:
        """A learner of the sampler's own model."""
        assert sampler.model is not None
        spaces = sampler.observation_space, sampler.action_space
        return cls(sampler.model, *spaces, config, device, precision)

    def update(self, batch: SequenceBatch, publish: Publish) -> dict[str, float]:
        """Learn from one batch, calling `publish` whenever new weights are to be handed out.

        Returns metrics by name (losses/..., charts/..., perf/...). Raises NonFiniteError.
        """
        raise NotImplementedError

    def check_sampler(self, config: SamplerConfig) -> None:
        """Raise ConfigError where batches of such a sampler cannot be learned from."""
        if self.sync and not config.sync:
            raise ConfigError(
                f"{type(self).__name__} learns from the newest policy's own steps; set sync=True"
            )

    def prepare(self, sampler: Sampler) -> None:
        """Reserve what learning from the sampler's batches takes, before the first one comes.

        Raises ConfigError where there is not enough of it.
        """

    @property
    def saved_replay_bytes(self) -> int:
        """Bytes that a full replay takes in every checkpoint; 0 where none is saved."""
        return 0

    def set_progress(self, steps: int, total_steps: int | None) -> None:
        """Set the learning rate for `steps` of `total_steps` agent steps (None: no end)."""
        rate = self.config.learning_rate
        if self.config.anneal_learning_rate and total_steps:
            rate = LinearSchedule(rate, 0.0, total_steps)(steps)
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def exploration(self, lanes: int, steps: int) -> np.ndarray | None:
        """Probability of a random action in every lane after `steps` agent steps, [lanes]; None
        where the policy itself explores."""
        return None

    @property
    def learning_rate(self) -> float:
        """The optimiser's step size now."""
        return self.optimiser.param_groups[0]["lr"]

    def autocast(self) -> torch.autocast:
        """The context for the model's forward pass."""
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16
        )

    def step(self, loss: Tensor, suspects: Mapping[str, Tensor]) -> bool:
        """One optimiser step down the gradient of `loss` (a scalar), its norm clipped.

        A step whose loss or gradient is not finite is skipped and counted; the guard is told the
        first bad tensor among `suspects`, the parameters and their gradients. Returns whether the
        step was made.
        """
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))
        size, loss_value = torch.stack((norm, loss.detach())).tolist()
        if not (abs(loss_value) < float("inf") and size < float("inf")):
            self.guard.bad(self._first_bad(suspects))
            return False
        limit = self.config.max_grad_norm
        if limit and size > limit:
            torch._foreach_mul_(gradients, limit / size)
        self.optimiser.step()
        self.guard.good()
        self.updates += 1
        self.metrics.add({"losses/grad_norm": norm})
        return True

    def _first_bad(self, suspects: Mapping[str, Tensor]) -> str:
        parameters = ((f"parameter {n}", p) for n, p in self.parameters.items())
        gradients = ((f"gradient of {n}", p.grad) for n, p in self.parameters.items())
        for group in (parameters, suspects.items(), gradients):
            if (name := first_non_finite(group)) is not None:
                return name
        return "norm of the gradient"

    def publish(self, publish: Publish) -> None:
        """Publish the weights and remember their version."""
        version = publish()
        if version is not None:
            self.version = version

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain tensors, numbers and strings."""
        state: dict[str, Any] = {
            "algorithm": type(self).__name__,
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
        """Continue from `state_dict()`, bit for bit. Raises ConfigError where it does not fit."""
        if state["algorithm"] != type(self).__name__:
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
        self.updates = state["updates"]
        self.random.set_state(state["random"]["shuffle"].cpu())
        torch.set_rng_state(state["random"]["torch"].cpu())
        if self.device.type == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), self.device)


def make_optimiser(parameters: list[nn.Parameter], config: LearnerConfig) -> torch.optim.Optimizer:
    """The optimiser that `config` names, over `parameters`."""
    rate, eps = config.learning_rate, config.epsilon
    if config.optimiser == "adam":
        return torch.optim.Adam(parameters, rate, eps=eps, fused=True)
    decay, momentum = config.rmsprop_decay, config.rmsprop_momentum
    if config.optimiser == "rmsprop":
        centered = config.rmsprop_centered
        return torch.optim.RMSprop(
            parameters, rate, decay, eps, momentum=momentum, centered=centered, foreach=True
        )
    return RMSPropTF(parameters, rate, decay, eps, momentum, config.rmsprop_centered)


def resolve_precision(precision: str, device: torch.device, model: nn.Module) -> torch.dtype:
    """The forward pass's dtype; auto pays off for convolutions on native bfloat16 only."""
    if precision == "auto":
        native = has_native_bfloat16(device) and _has_convolutions(model)
        return torch.bfloat16 if native else torch.float32
    if precision not in ("float32", "bfloat16"):
        raise ConfigError(f"precision={precision!r} is not one of auto, float32, bfloat16")
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def _has_convolutions(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in model.modules())
