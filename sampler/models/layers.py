"""Layers with their initialisation, and the rule for where low precision is used.

Only the image encoders may run in bfloat16 (under autocast, or converted for inference), since they
take most of the time. Vectors, recurrent cores and heads are always computed in float32, so that
log-probabilities agree between worker and learner.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

RELU_GAIN = sqrt(2)
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}


_to_be_loaded = False


@contextmanager
def weights_to_be_loaded() -> Iterator[None]:
    """A block in which models are made whose weights are replaced before they are used.

    Orthogonal weights take seconds where images are large: those of 3x256x256 make a layer of 25
    million.
    """
    global _to_be_loaded
    before, _to_be_loaded = _to_be_loaded, True
    try:
        yield
    finally:
        _to_be_loaded = before


def orthogonal(layer: nn.Module, gain: float = RELU_GAIN) -> Any:
    """`layer` with orthogonal weights (Saxe et al. 2014) times `gain`, and biases of 0.

    Within `weights_to_be_loaded` it is left as it is.
    """
    if _to_be_loaded:
        return layer
    for name, parameter in layer.named_parameters():
        if "weight" in name:
            nn.init.orthogonal_(parameter, gain)
        else:
            nn.init.zeros_(parameter)
    return layer


def mlp(inputs: int, hidden: tuple[int, ...], activation: str) -> nn.Sequential:
    """Linear layers of the widths `hidden`, each followed by the activation."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [orthogonal(nn.Linear(inputs, size)), ACTIVATIONS[activation]()]
        inputs = size
    return nn.Sequential(*layers)


def full_precision(device: torch.device) -> AbstractContextManager:
    """Switches autocast off if it is on."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def compute_dtype(device: torch.device, weights: torch.dtype) -> torch.dtype:
    """The dtype that autocast prescribes, or else that of the weights."""
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return weights


def flatten_leading(tensor: Tensor, dims: int) -> Tensor:
    """Join the first `dims` dimensions into one."""
    return tensor.flatten(0, dims - 1) if dims > 1 else tensor
