"""IMPALA: an asynchronous actor-critic with V-trace (Espeholt et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Literal

from sampler.checks import check_choice, check_numbers
from sampler.learner.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from sampler.learner.base import Publish
from sampler.learner.functional.losses import policy_gradient_loss, reduce, value_loss
from sampler.learner.functional.targets import vtrace

if TYPE_CHECKING:
    from sampler.batch import SequenceBatch


@dataclass(frozen=True)
class IMPALAConfig(ActorCriticConfig):
    """Settings of IMPALA; the defaults are the paper's for Atari (table G.1)."""

    learning_rate: float = 6e-4
    anneal_learning_rate: bool = True
    optimiser: Literal["adam", "rmsprop", "rmsprop_tf"] = "rmsprop_tf"
    epsilon: float = 0.01
    max_grad_norm: float = 40.0
    lambda_: float = 1.0
    reward_clip: float = 1.0
    clip_rho: float = 1.0
    """Bound on the importance ratios in the temporal differences."""
    clip_pg_rho: float = 1.0
    """Bound on the importance ratios in the policy gradient."""
    clip_c: float = 1.0
    """Bound on the importance ratios in the traces."""
    reduction: Literal["sum", "mean"] = "sum"
    """Losses are summed over the batch's steps as in the paper, or averaged; learning rate and
    max_grad_norm must fit it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "clip_rho", "clip_pg_rho", "clip_c", above=0, infinite=True)
        check_choice(self, "reduction", ("sum", "mean"))


class IMPALA(ActorCritic):
    """One optimiser step on each batch, of any age."""

    config: IMPALAConfig

    def update(self, batch: SequenceBatch, publish: Publish) -> dict[str, float]:
        config = self.config
        part = self.rollout(batch)
        if part.valid.any():
            now = self.predict(part)
            values = now.values.detach()
            vs, advantages = vtrace(
                now.log_ratios.detach(),
                part.discounts,
                part.rewards,
                values[:, :-1],
                values[:, 1:],
                part.cuts,
                clip_rho=config.clip_rho,
                clip_pg_rho=config.clip_pg_rho,
                clip_c=config.clip_c,
                lambda_=config.lambda_,
            )
            valid, reduction = part.valid, config.reduction
            policy = policy_gradient_loss(now.log_probs, advantages, valid, reduction)
            value = value_loss(now.values[:, :-1], vs, mask=valid, reduction=reduction)
            # by more than 0.01, since without lag rounding puts them on either side of 1
            bounded = (now.log_ratios.detach() > log(config.clip_rho) + 0.01).float()
            clipped = {"losses/clipfrac": reduce(bounded, valid)}
            self.descend(part, now, vs, policy, value, clipped, reduction)
        return self.finish(part, publish)
