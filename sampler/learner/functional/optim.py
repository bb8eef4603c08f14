"""RMSProp in TensorFlow's form, which IMPALA and Ape-X were tuned with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class RMSPropTF(Optimizer):
    """RMSProp as in TensorFlow 1 (Tieleman and Hinton 2012):

        s <- decay s + (1 - decay) g^2                s starts at 1
        m <- momentum m + lr g / sqrt(s + eps)        p <- p - m

    and with `centered` (Graves 2013) s - a^2 in place of s, a <- decay a + (1 - decay) g. In
    `torch.optim.RMSprop` s starts at 0, epsilon is outside the root, and the learning rate is
    outside the momentum; with epsilon = 0.01 these are different optimisers.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 6e-4,
        decay: float = 0.99,
        eps: float = 0.01,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "decay": decay,
            "eps": eps,
            "momentum": momentum,
            "centered": centered,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._update(group, params, [p.grad for p in params])
        return loss

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """All parameters of a group in a handful of fused calls."""
        decay = group["decay"]
        square = self._slots(params, "square_average", 1.0)
        torch._foreach_mul_(square, decay)
        torch._foreach_addcmul_(square, grads, grads, 1 - decay)
        if group["centered"]:
            average = self._slots(params, "grad_average", 0.0)
            torch._foreach_lerp_(average, grads, 1 - decay)
            # Rounding can leave the variance a little below 0, where the root would be NaN.
            variance = torch._foreach_addcmul(square, average, average, -1)
            torch._foreach_clamp_min_(variance, 0.0)
            denominator = torch._foreach_add(variance, group["eps"])
        else:
            denominator = torch._foreach_add(square, group["eps"])
        torch._foreach_sqrt_(denominator)
        if group["momentum"]:
            momentum = self._slots(params, "momentum", 0.0)
            torch._foreach_mul_(momentum, group["momentum"])
            torch._foreach_addcdiv_(momentum, grads, denominator, group["lr"])
            torch._foreach_sub_(params, momentum)
        else:
            torch._foreach_addcdiv_(params, grads, denominator, -group["lr"])

    def _slots(self, params: list[Tensor], name: str, initial: float) -> list[Tensor]:
        """The running averages called `name`, made at the first step."""
        for p in params:
            if name not in self.state[p]:
                self.state[p][name] = torch.full_like(
                    p, initial, memory_format=torch.preserve_format
                )
        return [self.state[p][name] for p in params]
