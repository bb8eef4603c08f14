"""A model's parameters and buffers as one flat block of 64-bit words, in a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

WORD = 8  # bytes; every tensor starts on a word


class ParameterBlock:
    """The layout of a model's state in a flat block; the same for every copy of the model."""

    def __init__(self, model: nn.Module):
        self.entries: list[tuple[str, torch.dtype, tuple[int, ...], int, int]] = []
        self.nbytes = 0
        for name, tensor in model.state_dict().items():
            size = tensor.numel() * tensor.element_size()
            self.entries.append((name, tensor.dtype, tuple(tensor.shape), self.nbytes, size))
            self.nbytes += -(-size // WORD) * WORD

    def views(self, block: np.ndarray | Tensor) -> dict[str, Tensor]:
        """Tensors that share the memory of `block`, int64 [words], by name; on its device."""
        import torch

        flat = torch.as_tensor(block).view(torch.uint8)
        return {
            name: flat[start : start + size].view(dtype).view(shape)
            for name, dtype, shape, start, size in self.entries
        }

    @staticmethod
    def copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
        """Copy every tensor of `target` from `source`, which may be on another device."""
        import torch

        with torch.no_grad():
            for name, tensor in target.items():
                tensor.copy_(source[name])
