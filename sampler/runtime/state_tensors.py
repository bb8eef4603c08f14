"""Saved states (nested dicts and lists of arrays, numbers and strings) to tensors and back.

Tensors are what `torch.load` reads without executing code.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def to_tensors(state: Any) -> Any:
    """`state` with every array as a tensor on the CPU; arrays in memory are not copied."""
    import torch

    if isinstance(state, dict):
        return {name: to_tensors(part) for name, part in state.items()}
    if isinstance(state, list):
        return [to_tensors(part) for part in state]
    if isinstance(state, np.ndarray):
        return torch.from_numpy(state)
    return state.cpu() if isinstance(state, torch.Tensor) else state


def to_arrays(state: Any) -> Any:
    """`state` with a copy of every tensor as an array."""
    import torch

    if isinstance(state, dict):
        return {name: to_arrays(part) for name, part in state.items()}
    if isinstance(state, list):
        return [to_arrays(part) for part in state]
    return state.cpu().numpy().copy() if isinstance(state, torch.Tensor) else state
