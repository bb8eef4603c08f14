"""Running normalization of float observations; its statistics are buffers of the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LARGEST = 1e15  # its square is far below float32's largest number


class Normalizer(nn.Module):
    """(x - mean) / sqrt(var + eps), clipped at +-10; at first the identity, except for the clip.

    Mean, variance (of the population) and count, all [D], are buffers, so they go with the weights
    to the policy workers, into checkpoints and to evaluation. Only the learner updates them.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int, eps: float = 1e-8, clip: float = 10.0) -> None:
        super().__init__()
        self.eps = eps
        self.clip = clip
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        scale = (self.var + self.eps).rsqrt()
        return ((x - self.mean) * scale).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def update(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Merge samples x [N, D], where `mask` (N bools of any shape) is True.

        Entries beyond LARGEST, infinite or NaN are left out, as they would corrupt the statistics
        for good. Exact merging of mean and variance: Chan, Golub and LeVeque (1979).
        """
        if mask is not None:
            x = x[mask.reshape(-1)]
        x = x.double()
        counted = x.abs() <= LARGEST
        count = counted.sum(0)
        mean = x.where(counted, 0).sum(0) / count.clamp(min=1)
        var = (x - mean).where(counted, 0).square().sum(0) / count.clamp(min=1)
        total = self.count.double() + count
        delta = mean - self.mean
        share = count / total.clamp(min=1)
        merged = self.var * (1 - share) + var * share + delta.square() * share * (1 - share)
        self.var.copy_(merged)
        self.mean.add_(delta * share)
        self.count.copy_(total)
