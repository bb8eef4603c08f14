"""Saving states as checkpoints do, and comparing them to the last bit."""

from __future__ import annotations

import io
from typing import Any

import torch

CLOCKS = {"seconds"}  # of a checkpoint: not the same twice


def through_a_file(state: Any) -> Any:
    """`state` as it comes back from a checkpoint."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def differences(a: Any, b: Any, path: str = "state") -> list[str]:
    """Where two states differ in any bit, clocks aside."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        names = [name for name in a if name not in CLOCKS]
        return [d for name in names for d in differences(a[name], b[name], f"{path}.{name}")]
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [d for i, (x, y) in pairs for d in differences(x, y, f"{path}[{i}]")]
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = (a.shape, a.dtype) == (b.shape, b.dtype)
        same = same and a.numpy().tobytes() == b.numpy().tobytes()
    else:
        same = type(a) is type(b) and a == b
    return [] if same else [path]
