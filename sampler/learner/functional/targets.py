"""Return and advantage targets, vectorised over batch and time.

Notation. B: rows, T: steps in a row. Every argument is a floating-point tensor [B, T] unless its
shape is given; `cuts` is bool. Index t is the step from x_t to x_{t+1}:

    rewards[:, t]       r_t, the reward of step t
    discounts[:, t]     gamma, or 0 where step t terminated its episode
    next_values[:, t]   the value of x_{t+1}, the observation after step t (at a truncation that of
                        the true final observation; at a termination its discount is 0)
    cuts[:, t]          the episode ended after step t, terminated or truncated: nothing later in
                        the row belongs to it. None: no episode ends inside the rows.

Everything must be finite, at masked steps too: 0 x inf would leak over a cut. The last step of a
row is always followed by a bootstrap from its next value. No function here
records gradients. Results have the inputs' dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """`vs`: value targets; `pg_advantages`: advantages for the policy gradient; both [B, T]."""

    vs: Tensor
    pg_advantages: Tensor


class Transform(NamedTuple):
    """An invertible squashing of values: learned values are `apply(true value)`."""

    apply: Callable[[Tensor], Tensor]
    invert: Callable[[Tensor], Tensor]


@torch.no_grad()
def vtrace(
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_values: Tensor,
    cuts: Tensor | None = None,
    clip_rho: float = 1.0,
    clip_pg_rho: float = 1.0,
    clip_c: float = 1.0,
    lambda_: float = 1.0,
) -> VTrace:
    """V-trace targets (Espeholt et al. 2018, equation 1 and section 4.2).

    `log_rhos`: log pi(a_t|x_t) - log mu(a_t|x_t). `values`: V(x_t); `bootstrap_values`: V(x_{t+1}),
    see `next_values` above. A clip of `math.inf` does not clip; `lambda_` multiplies the traces c
    (remark 2). The advantage is rho_t (r_t + gamma v_{t+1} - V(x_t)), where v_{t+1} is V(x_{t+1})
    at a cut and at the end of the row.
    """
    rhos = log_rhos.exp()
    traces = lambda_ * rhos.clamp(max=clip_c)
    deltas = rhos.clamp(max=clip_rho) * (rewards + discounts * bootstrap_values - values)
    decays = _uncut(discounts * traces, cuts)
    if clip_c > 1:  # products of unbounded traces could leave the range of float32
        corrections = backward_recurrence(decays.double(), deltas.double()).to(deltas.dtype)
    else:
        corrections = backward_recurrence(decays, deltas)
    vs = values + corrections
    next_vs = _shift(vs, bootstrap_values, cuts)
    pg_rhos = rhos.clamp(max=clip_pg_rho)
    return VTrace(vs, pg_rhos * (rewards + discounts * next_vs - values))


@torch.no_grad()
def gae(
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    cuts: Tensor | None = None,
    lambda_: float = 0.95,
) -> Tensor:
    """Generalised advantage estimates [B, T] (Schulman et al. 2016, equation 16)."""
    deltas = rewards + discounts * next_values - values
    return backward_recurrence(_uncut(lambda_ * discounts, cuts), deltas)


@torch.no_grad()
def lambda_returns(
    discounts: Tensor,
    rewards: Tensor,
    next_values: Tensor,
    cuts: Tensor | None = None,
    lambda_: float = 0.95,
) -> Tensor:
    """TD(lambda) returns G_t = r_t + gamma ((1 - lambda) V(x_{t+1}) + lambda G_{t+1}), [B, T]."""
    decays = _uncut(lambda_ * discounts, cuts)
    decays[:, -1] = 0
    return backward_recurrence(decays, rewards + (discounts - decays) * next_values)


@torch.no_grad()
def n_step_targets(
    discounts: Tensor,
    rewards: Tensor,
    next_values: Tensor,
    cuts: Tensor | None = None,
    n: int = 5,
) -> Tensor:
    """n-step bootstrapped returns [B, T].

    A window that reaches a cut or the end of the row bootstraps there, with fewer rewards.
    """
    returns = rewards + discounts * next_values
    for _ in range(min(n, rewards.shape[1]) - 1):
        returns = rewards + discounts * _shift(returns, next_values, cuts)
    return returns


@torch.no_grad()
def value_rescale(x: Tensor, eps: float = 1e-3) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen et al. 2018), any shape.

    Written without the cancellation of the root and 1, so it is exact for small x as well.
    """
    return x / ((x.abs() + 1).sqrt() + 1) + eps * x


@torch.no_grad()
def value_rescale_inv(x: Tensor, eps: float = 1e-3) -> Tensor:
    """The inverse of `value_rescale`, any shape.

    With u = sqrt(|y| + 1) - 1, h(y) = x reads eps u^2 + (1 + 2 eps) u = |x|; its positive root in
    the form that does not cancel, and |y| = u (u + 2).
    """
    b = 1 + 2 * eps
    u = 2 * x / (b + (b * b + 4 * eps * x.abs()).sqrt())
    return u * (u.abs() + 2)


RESCALE = Transform(value_rescale, value_rescale_inv)
IDENTITY = Transform(lambda x: x, lambda x: x)


@torch.no_grad()
def double_q_values(q_values: Tensor, selector: Tensor) -> Tensor:
    """[...]: entries of `q_values` [..., A] at the greedy actions of `selector` [..., A]
    (van Hasselt et al. 2016: the online network selects, the target network evaluates)."""
    return q_values.gather(-1, selector.argmax(-1, keepdim=True)).squeeze(-1)


@torch.no_grad()
def transformed_n_step(
    discounts: Tensor,
    rewards: Tensor,
    next_values: Tensor,
    cuts: Tensor | None = None,
    n: int = 5,
    transform: Transform = RESCALE,
) -> Tensor:
    """R2D2's targets h(sum gamma^k r + gamma^n h^-1(Q_target(x_{t+n}, a*))), [B, T]
    (Kapturowski et al. 2019, section 2.3). `next_values` are in transformed units."""
    inverted = transform.invert(next_values)
    return transform.apply(n_step_targets(discounts, rewards, inverted, cuts, n))


@torch.no_grad()
def transformed_q_lambda(
    discounts: Tensor,
    rewards: Tensor,
    next_values: Tensor,
    cuts: Tensor | None = None,
    lambda_: float = 0.95,
    transform: Transform = RESCALE,
) -> Tensor:
    """Peng's Q(lambda) targets [B, T]. `next_values`: max_a Q(x_{t+1}, a), in transformed units."""
    inverted = transform.invert(next_values)
    return transform.apply(lambda_returns(discounts, rewards, inverted, cuts, lambda_))


@torch.no_grad()
def retrace(
    discounts: Tensor,
    rewards: Tensor,
    next_q_values: Tensor,
    next_probs: Tensor,
    next_actions: Tensor,
    next_log_rhos: Tensor,
    cuts: Tensor | None = None,
    lambda_: float = 0.95,
    transform: Transform = RESCALE,
) -> Tensor:
    """Retrace targets [B, T] in transformed units (Munos et al. 2016).

    G_t = r_t + gamma (sum_a pi(a) Q(x_{t+1}, a) + c_{t+1} (G_{t+1} - Q(x_{t+1}, a_{t+1}))) with
    c = lambda min(1, pi / mu). `next_q_values` [B, T, A]: the target network's, transformed;
    `next_probs` [B, T, A]: pi(.|x_{t+1}); `next_actions` [B, T] (int64) and `next_log_rhos`
    [B, T], log pi(a_{t+1}|x_{t+1}) - log mu, may hold anything valid at cuts and in the last step.
    """
    q_values = transform.invert(next_q_values)
    values = (next_probs * q_values).sum(-1)
    action_values = q_values.gather(-1, next_actions.unsqueeze(-1)).squeeze(-1)
    decays = _uncut(discounts * lambda_ * next_log_rhos.exp().clamp(max=1), cuts)
    decays[:, -1] = 0
    increments = rewards + discounts * values - decays * action_values
    return transform.apply(backward_recurrence(decays, increments))


@torch.no_grad()
def two_hot(x: Tensor, low: float, high: float, bins: int) -> Tensor:
    """[..., bins]: each x as weights of the two nearest of `bins` equally spaced atoms."""
    position = (x.clamp(low, high) - low) * ((bins - 1) / (high - low))
    atoms = torch.arange(bins, dtype=x.dtype, device=x.device)
    return (1 - (position.unsqueeze(-1) - atoms).abs()).clamp(min=0)


def backward_recurrence(decays: Tensor, increments: Tensor) -> Tensor:
    """x_t = increments_t + decays_t x_{t+1}, x_T = 0; both arguments and the result are [B, T].

    Recursive doubling: after the round with stride s, x_t holds the recurrence over 2s steps. That
    is 3 log2(T) operations on [B, T] in place of T on [B]: for T = 128 it is 4 times faster on one
    core and needs 20 kernel launches instead of 127 on a GPU. It only adds and multiplies, so for
    decays of at most 1 it is as stable as the loop.
    """
    x = increments.clone()
    steps = x.shape[1]
    stride = 1
    while stride < steps:
        x[:, : steps - stride] += decays[:, : steps - stride] * x[:, stride:]
        rest = max(steps - 2 * stride, 0)
        decays = decays[:, :rest] * decays[:, stride : stride + rest]
        stride *= 2
    return x


def _uncut(decays: Tensor, cuts: Tensor | None) -> Tensor:
    return decays if cuts is None else decays.masked_fill(cuts, 0)


def _shift(returns: Tensor, next_values: Tensor, cuts: Tensor | None) -> Tensor:
    """[B, T]: returns of step t + 1, and `next_values` at cuts and in the last step."""
    following = torch.cat((returns[:, 1:], next_values[:, -1:]), dim=1)
    return following if cuts is None else torch.where(cuts, next_values, following)
