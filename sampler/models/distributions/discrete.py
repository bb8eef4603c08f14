"""Distributions over Discrete, MultiDiscrete and MultiBinary actions, with masks."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from sampler.models.distributions.base import (
    MASKED,
    ActionDistribution,
    Constant,
    DistributionFactory,
    torch_dtype,
)


def masked_log_softmax(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Normalized log-probabilities in float32; masked entries (False) get probability 0."""
    logits = logits.float()
    if mask is not None:
        logits = logits.masked_fill(~mask, MASKED)
    return torch.log_softmax(logits, dim=-1)


def sample_index(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Gumbel-max: argmax of log p - log(-log u), which never picks a probability of 0."""
    noise = torch.rand(log_probs.shape, generator=generator, device=log_probs.device)
    return (log_probs - noise.log_().neg_().log_()).argmax(-1)


def categorical_entropy(log_probs: Tensor) -> Tensor:
    """-sum p log p over the last dimension; -inf logits of a model's own masking are allowed."""
    return -(log_probs.exp() * log_probs.clamp_min(MASKED)).sum(-1)


def categorical_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """sum p (log p - log q) over the last dimension."""
    difference = log_p.clamp_min(MASKED) - log_q.clamp_min(MASKED)
    return (log_p.exp() * difference).sum(-1)


class Categorical(ActionDistribution):
    """One choice of n. `log_probs` [..., n] are normalized."""

    __slots__ = ("dtype", "log_probs", "start")

    def __init__(self, log_probs: Tensor, start: int, dtype: torch.dtype) -> None:
        self.log_probs = log_probs
        self.start = start
        self.dtype = dtype

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self._actions(sample_index(self.log_probs, generator))

    def sample_with_log_prob(
        self, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        index = sample_index(self.log_probs, generator)
        return self._actions(index), self.log_probs.gather(-1, index[..., None]).squeeze(-1)

    def mode(self) -> Tensor:
        return self._actions(self.log_probs.argmax(-1))

    def log_prob(self, actions: Tensor) -> Tensor:
        index = (actions.long() - self.start).clamp_(0, self.log_probs.shape[-1] - 1)
        return self.log_probs.gather(-1, index[..., None]).squeeze(-1)

    def entropy(self) -> Tensor:
        return categorical_entropy(self.log_probs)

    def kl(self, other: Categorical) -> Tensor:
        return categorical_kl(self.log_probs, other.log_probs)

    def _actions(self, index: Tensor) -> Tensor:
        if self.start:
            index = index + self.start
        return index.to(self.dtype)


class CategoricalFactory(DistributionFactory):
    """Parameters: n logits."""

    def __init__(self, space: spaces.Discrete) -> None:
        self.num_parameters = self.mask_size = int(space.n)
        self._start = int(space.start)
        self._dtype = torch_dtype(space.dtype)

    def __call__(self, parameters: Tensor, action_mask: Tensor | None = None) -> Categorical:
        log_probs = masked_log_softmax(parameters, action_mask)
        return Categorical(log_probs, self._start, self._dtype)


class MultiCategorical(ActionDistribution):
    """K independent choices. `log_probs` [..., K, n], shorter ones padded with probability 0."""

    __slots__ = ("dtype", "log_probs", "shape", "start")

    def __init__(
        self, log_probs: Tensor, start: Tensor, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        self.log_probs = log_probs
        self.start = start
        self.shape = shape
        self.dtype = dtype

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self._actions(sample_index(self.log_probs, generator))

    def sample_with_log_prob(
        self, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        index = sample_index(self.log_probs, generator)
        return self._actions(index), self._log_prob(index)

    def mode(self) -> Tensor:
        return self._actions(self.log_probs.argmax(-1))

    def log_prob(self, actions: Tensor) -> Tensor:
        index = actions.reshape(self.log_probs.shape[:-1]).long() - self.start
        return self._log_prob(index.clamp_(0, self.log_probs.shape[-1] - 1))

    def entropy(self) -> Tensor:
        return categorical_entropy(self.log_probs).sum(-1)

    def kl(self, other: MultiCategorical) -> Tensor:
        return categorical_kl(self.log_probs, other.log_probs).sum(-1)

    def _log_prob(self, index: Tensor) -> Tensor:
        return self.log_probs.gather(-1, index[..., None]).squeeze(-1).sum(-1)

    def _actions(self, index: Tensor) -> Tensor:
        return (index + self.start).to(self.dtype).reshape(index.shape[:-1] + self.shape)


class MultiCategoricalFactory(DistributionFactory):
    """Parameters: the logits of each choice one after the other, sum(nvec) in all."""

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        sizes = space.nvec.reshape(-1)
        self.num_parameters = self.mask_size = int(sizes.sum())
        self._shape = tuple(space.shape)
        self._start = Constant(space.start.reshape(-1).astype(np.int64))
        self._dtype = torch_dtype(space.dtype)
        self._grid = (len(sizes), int(sizes.max()))
        self._equal = bool((sizes == sizes[0]).all())
        choice = np.arange(self._grid[1])
        offsets = np.cumsum(sizes) - sizes
        self._present = Constant(choice < sizes[:, None])  # [K, n]
        self._source = Constant(np.minimum(offsets[:, None] + choice, sizes.sum() - 1).reshape(-1))

    def __call__(self, parameters: Tensor, action_mask: Tensor | None = None) -> MultiCategorical:
        device = parameters.device
        logits = self._per_choice(parameters)
        mask = None if action_mask is None else self._per_choice(action_mask)
        if not self._equal:
            present = self._present.on(device)
            if mask is not None:
                # A choice without any permitted value permits all, but never the padding.
                mask = (mask | ~(mask & present).any(-1, keepdim=True)) & present
            else:
                mask = present
        log_probs = masked_log_softmax(logits, mask)
        return MultiCategorical(log_probs, self._start.on(device), self._shape, self._dtype)

    def _per_choice(self, flat: Tensor) -> Tensor:
        """[..., sum(nvec)] -> [..., K, n]; entries beyond a choice's size are arbitrary."""
        if not self._equal:
            flat = flat.index_select(-1, self._source.on(flat.device))
        return flat.reshape(flat.shape[:-1] + self._grid)


class Bernoulli(ActionDistribution):
    """Independent bits. `logits` [..., n] float32 of a 1; masked bits are always 0."""

    __slots__ = ("dtype", "logits", "shape")

    def __init__(self, logits: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.logits = logits
        self.shape = shape
        self.dtype = dtype

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        noise = torch.rand(self.logits.shape, generator=generator, device=self.logits.device)
        return self._actions(noise < self.logits.sigmoid())

    def mode(self) -> Tensor:
        return self._actions(self.logits > 0)

    def log_prob(self, actions: Tensor) -> Tensor:
        bits = actions.reshape(self.logits.shape) > 0
        return -F.softplus(torch.where(bits, -self.logits, self.logits)).sum(-1)

    def entropy(self) -> Tensor:
        return (F.softplus(self.logits) - self.logits * self.logits.sigmoid()).sum(-1)

    def kl(self, other: Bernoulli) -> Tensor:
        difference = self.logits.sigmoid() * (self.logits - other.logits)
        return (difference - F.softplus(self.logits) + F.softplus(other.logits)).sum(-1)

    def _actions(self, bits: Tensor) -> Tensor:
        return bits.to(self.dtype).reshape(bits.shape[:-1] + self.shape)


class BernoulliFactory(DistributionFactory):
    """Parameters: one logit per bit."""

    def __init__(self, space: spaces.MultiBinary) -> None:
        self._shape = tuple(space.shape)
        self.num_parameters = self.mask_size = prod(self._shape)
        self._dtype = torch_dtype(space.dtype)

    def __call__(self, parameters: Tensor, action_mask: Tensor | None = None) -> Bernoulli:
        logits = parameters.float().clamp_min(MASKED)
        if action_mask is not None:
            logits = logits.masked_fill(~action_mask, MASKED)
        return Bernoulli(logits, self._shape, self._dtype)
