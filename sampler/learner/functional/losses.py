"""Losses and diagnostics of policy gradient and value learning, all masked.

Arguments are tensors of one shape, usually [B, T]. `mask` (bool, or 0 and 1) marks the terms that
count; None: all. Masked terms contribute nothing to a loss, even if they are infinite or NaN, and
nothing to its gradient as long as advantages and targets are finite. `reduction` is "mean" (over
the terms that count) or "sum"; every loss is to be minimised and returned as a scalar. Weights of
single terms, such as importance weights, are multiplied into the advantages or applied to unreduced
terms with `reduce`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Reduction = Literal["mean", "sum"]

RATIO_RANGE = (0.05, 20.0)
"""Sample Factory clamps the probability ratio to this range before anything else."""


def reduce(terms: Tensor, mask: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    """The masked sum or mean of `terms`, a scalar; 0 where nothing is valid."""
    if mask is None:
        return terms.mean() if reduction == "mean" else terms.sum()
    mask = mask.bool()
    total = torch.where(mask, terms, terms.new_zeros(())).sum()
    return total / mask.sum().clamp(min=1) if reduction == "mean" else total


def policy_gradient_loss(
    log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """-A log pi(a); no gradient flows into the advantages."""
    return reduce(-advantages.detach() * log_probs, mask, reduction)


def ppo_terms(ratios: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """-min(ratio A, clip(ratio, low, high) A), unreduced (Schulman et al. 2017, equation 7)."""
    return -torch.min(ratios * advantages, ratios.clamp(low, high) * advantages)


def ppo_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    clip: float,
    asymmetric: bool = False,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """PPO's clipped surrogate.

    The ratio is clipped to [1 - clip, 1 + clip], or with `asymmetric`, as in Sample Factory, to
    [1 / (1 + clip), 1 + clip], equal steps in log space, after a clamp to RATIO_RANGE.
    """
    ratios = (log_probs - old_log_probs).exp()
    low, high = clip_range(clip, asymmetric)
    if asymmetric:
        ratios = ratios.clamp(*RATIO_RANGE)
    return reduce(ppo_terms(ratios, advantages.detach(), low, high), mask, reduction)


def clip_range(clip: float, asymmetric: bool = False) -> tuple[float, float]:
    """The bounds of the probability ratio, see `ppo_loss`."""
    return (1 / (1 + clip) if asymmetric else 1 - clip), 1 + clip


def value_loss(
    values: Tensor,
    targets: Tensor,
    old_values: Tensor | None = None,
    clip: float | None = None,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Half the squared error, the baseline loss.

    With `clip`, PPO's: the larger of this and the error of the value kept within `clip` of
    `old_values`, the one predicted when acting.
    """
    terms = (values - targets.detach()).square()
    if clip is not None:
        if old_values is None:
            raise ValueError(f"clip={clip} needs old_values")
        clipped = old_values + (values - old_values).clamp(-clip, clip)
        terms = torch.max(terms, (clipped - targets.detach()).square())
    return 0.5 * reduce(terms, mask, reduction)


def entropy_loss(
    entropies: Tensor, mask: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """Minus the entropy: its coefficient is positive."""
    return -reduce(entropies, mask, reduction)


def kl_loss(kls: Tensor, mask: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    """A penalty on the divergence from another policy."""
    return reduce(kls, mask, reduction)


def huber(errors: Tensor, delta: float = 1.0) -> Tensor:
    """Unreduced: e^2 / 2 within delta, delta (|e| - delta / 2) outside; gradient clip(e, delta)."""
    absolute = errors.abs()
    within = absolute.clamp(max=delta)
    return within * (absolute - 0.5 * within)


@torch.no_grad()
def approximate_kl(log_ratios: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean of (ratio - 1) - log ratio over actions of the old policy: an unbiased estimate, never
    negative, of KL(old || new) (Schulman 2020, "Approximating KL divergence", k3)."""
    return reduce(log_ratios.expm1() - log_ratios, mask)


@torch.no_grad()
def clip_fraction(
    log_ratios: Tensor, clip: float, asymmetric: bool = False, mask: Tensor | None = None
) -> Tensor:
    """The share of probability ratios outside the clip range."""
    low, high = clip_range(clip, asymmetric)
    ratios = log_ratios.exp()
    return reduce(((ratios < low) | (ratios > high)).to(log_ratios.dtype), mask)


@torch.no_grad()
def explained_variance(values: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """1 - Var(targets - values) / Var(targets): 1 is perfect, 0 no better than a constant;
    NaN where the targets do not vary."""
    if mask is not None:
        values, targets = values[mask.bool()], targets[mask.bool()]
    variance = targets.var(correction=0)
    explained = 1 - (targets - values).var(correction=0) / variance
    return torch.where(variance > 0, explained, torch.full_like(explained, torch.nan))
