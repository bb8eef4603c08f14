"""Steps of an optimiser down a loss: gradients are clipped, and what is not finite is skipped."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sampler.learner.config import LearnerConfig
from sampler.learner.functional.optim import RMSPropTF
from sampler.learner.guards import FiniteGuard, first_non_finite


class GradientDescent:
    """The trained parameters of a model, their optimiser, and a guard that keeps both finite."""

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        max_grad_norm: float,
        max_non_finite: int,
    ) -> None:
        """optimiser: holds the model's parameters. max_grad_norm: bound of the gradient's norm over
        all of them; 0: none. max_non_finite: see `FiniteGuard`."""
        self.parameters = dict(trained_parameters(model))
        self.optimiser = optimiser
        self.max_grad_norm = max_grad_norm
        self.guard = FiniteGuard(max_non_finite)
        self.steps = 0
        """Steps made."""

    @property
    def learning_rate(self) -> float:
        """The optimiser's present step size."""
        return self.optimiser.param_groups[0]["lr"]

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def step(self, loss: Tensor, suspects: Mapping[str, Tensor]) -> Tensor | None:
        """One step down the gradient of `loss` (a scalar); returns the gradient's norm, a scalar.

        A step whose loss or gradient is not finite is skipped and counted, and returns None; the
        guard is given the name of the first bad tensor among the parameters, `suspects` and the
        gradients. Raises NonFiniteError if too many steps in a row are skipped.
        """
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))
        size, loss_value = torch.stack((norm, loss.detach())).tolist()
        if not (abs(loss_value) < float("inf") and size < float("inf")):
            self.guard.bad(self._first_bad(suspects))
            return None
        if self.max_grad_norm and size > self.max_grad_norm:
            torch._foreach_mul_(gradients, self.max_grad_norm / size)
        self.optimiser.step()
        self.guard.good()
        self.steps += 1
        return norm

    def _first_bad(self, suspects: Mapping[str, Tensor]) -> str:
        parameters = ((f"parameter {n}", p) for n, p in self.parameters.items())
        gradients = ((f"gradient of {n}", p.grad) for n, p in self.parameters.items())
        for group in (parameters, suspects.items(), gradients):
            if (name := first_non_finite(group)) is not None:
                return name
        return "norm of the gradient"


def trained_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters of a model that have gradients, by name."""
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def make_optimiser(model: nn.Module, config: LearnerConfig) -> torch.optim.Optimizer:
    """The optimiser that `config` names, over the model's trained parameters."""
    parameters = [parameter for _, parameter in trained_parameters(model)]
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
