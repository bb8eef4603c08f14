"""Behaviour of Q-models: epsilon-greedy actions, each lane with an epsilon of its own."""

from __future__ import annotations

import torch
from torch import Tensor


def epsilon_greedy(
    q_values: Tensor,
    epsilon: Tensor,
    generator: torch.Generator | None = None,
    action_mask: Tensor | None = None,
) -> Tensor:
    """Actions [n] int64, counted from 0: uniform with probability epsilon [n], else the best.

    q_values [n, A] float; action_mask [n, A] bool: only permitted (True) actions are considered.
    Actions that are equally good are equally likely.
    """
    noise = torch.rand(
        (len(q_values), q_values.shape[1] + 1), generator=generator, device=q_values.device
    )
    explore = noise[:, -1] < epsilon
    candidates = _greedy(q_values, action_mask) | explore[:, None]
    if action_mask is not None:
        candidates &= action_mask
    return noise[:, :-1].masked_fill(~candidates, -1.0).argmax(-1)


def epsilon_greedy_probs(
    q_values: Tensor, epsilon: Tensor | float, action_mask: Tensor | None = None
) -> Tensor:
    """Probabilities [n, A] float32 with which `epsilon_greedy` chooses; epsilon [n] or a number."""
    epsilon = torch.as_tensor(epsilon, dtype=torch.float32, device=q_values.device)[..., None]
    greedy = _greedy(q_values, action_mask).float()
    allowed = torch.ones_like(greedy) if action_mask is None else action_mask.float()
    best = greedy / greedy.sum(-1, keepdim=True)
    uniform = allowed / allowed.sum(-1, keepdim=True).clamp_min(1.0)
    return (1 - epsilon) * best + epsilon * uniform


def epsilon_greedy_log_prob(
    q_values: Tensor,
    epsilon: Tensor | float,
    actions: Tensor,
    action_mask: Tensor | None = None,
) -> Tensor:
    """Log-probability [n] float32 of `actions` [n] (counted from 0) under `epsilon_greedy`."""
    probs = epsilon_greedy_probs(q_values, epsilon, action_mask)
    return probs.gather(-1, actions.long()[..., None]).squeeze(-1).log()


def epsilon_ladder(n: int, base: float = 0.4, alpha: float = 7.0) -> Tensor:
    """Epsilons [n] float64 of n lanes: base ** (1 + alpha i / (n - 1)) (Horgan et al. 2018).

    A single lane gets `base`, which never ends exploring: give it a schedule instead.
    """
    i = torch.arange(n, dtype=torch.float64)
    return base ** (1 + alpha * i / max(n - 1, 1))


def _greedy(q_values: Tensor, action_mask: Tensor | None) -> Tensor:
    """[n, A] bool: the best permitted actions."""
    if action_mask is not None:
        q_values = q_values.masked_fill(~action_mask, float("-inf"))
    return q_values == q_values.amax(-1, keepdim=True)
