"""The precision of a model's forward pass on a device."""

from __future__ import annotations

import torch
from torch import nn

from sampler.errors import ConfigError
from sampler.models.device import has_native_bfloat16


def resolve_precision(precision: str, device: torch.device, model: nn.Module) -> torch.dtype:
    """The forward pass's dtype; auto pays off for convolutions on native bfloat16 only."""
    if precision == "auto":
        native = has_native_bfloat16(device) and has_convolutions(model)
        return torch.bfloat16 if native else torch.float32
    if precision not in ("float32", "bfloat16"):
        raise ConfigError(f"precision={precision!r} is not one of auto, float32, bfloat16")
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def has_convolutions(model: nn.Module) -> bool:
    """Whether the model has convolutions."""
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """The context for a forward pass in `dtype`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)
