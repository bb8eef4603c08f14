"""Asynchronous PPO with V-trace, as Sample Factory published it (Petrenko et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from sampler.checks import check_choice, check_flags, check_numbers
from sampler.learner.algorithms.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    Prediction,
    Rollout,
    check_equal_minibatches,
    row_slices,
)
from sampler.learner.base import Publish
from sampler.learner.functional.losses import clip_fraction, ppo_loss, value_loss
from sampler.learner.functional.normalize import normalize_advantages
from sampler.learner.functional.targets import gae, vtrace

if TYPE_CHECKING:
    from sampler.batch import SequenceBatch
    from sampler.config import SamplerConfig


@dataclass(frozen=True)
class APPOConfig(ActorCriticConfig):
    """Settings of APPO; the defaults are Sample Factory's for Atari."""

    learning_rate: float = 1e-4
    epsilon: float = 1e-6
    max_grad_norm: float = 4.0
    entropy_coef: float = 0.003
    with_vtrace: bool = True
    """Correct for policy lag with V-trace; otherwise GAE."""
    clip_rho: float = 1.0
    """Bound on V-trace's importance ratios in the temporal differences."""
    clip_c: float = 1.0
    """Bound on V-trace's importance ratios in the traces."""
    clip: float = 0.1
    """The policy ratio is clipped to [1 / (1 + clip), 1 + clip]."""
    value_clip: float = 1.0
    """Bound on the change of a value from the one predicted while acting; 0: none."""
    epochs: int = 1
    """Passes over a batch."""
    minibatches: int = 1
    """Optimiser steps per pass; each takes an equal share of the batch's rows."""
    normalize_advantages: bool = True
    """Give the advantages of a minibatch mean 0 and standard deviation 1."""
    publish_every: Literal["minibatch", "batch"] = "batch"
    """When new weights are handed to the policy workers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "clip", "clip_rho", "clip_c", above=0, infinite=True)
        check_numbers(self, "value_clip", least=0, infinite=True)
        check_numbers(self, "epochs", "minibatches", whole=True, least=1)
        check_flags(self, "with_vtrace", "normalize_advantages")
        check_choice(self, "publish_every", ("minibatch", "batch"))


class APPO(ActorCritic):
    """Learns from batches of any age; minibatches are slices of rows, so nothing is copied."""

    config: APPOConfig

    def check_sampler(self, config: SamplerConfig) -> None:
        super().check_sampler(config)
        check_equal_minibatches(self.config.minibatches, config.batch)

    def update(self, batch: SequenceBatch, publish: Publish) -> dict[str, float]:
        rollout = self.rollout(batch)
        minibatches = row_slices(len(rollout.valid), self.config.minibatches) * self.config.epochs
        for number, rows in enumerate(minibatches):
            if number and self.config.publish_every == "minibatch":
                self.publish(publish)
            self._learn(rollout[rows])
        return self.finish(rollout, publish)

    def _learn(self, part: Rollout) -> None:
        """One optimiser step on some rows, [b, T]."""
        config, valid = self.config, part.valid
        if not valid.any():
            return
        now = self.predict(part)
        values = now.values[:, :-1]
        advantages, targets = self._targets(part, now)
        if config.normalize_advantages:
            advantages = normalize_advantages(advantages, valid)
        log_ratios = now.log_ratios
        policy = ppo_loss(
            log_ratios, torch.zeros_like(log_ratios), advantages, config.clip, True, valid
        )
        value = value_loss(values, targets, part.values, config.value_clip or None, valid)
        clipped = clip_fraction(log_ratios.detach(), config.clip, True, valid)
        self.descend(part, now, targets, policy, value, {"losses/clipfrac": clipped})

    def _targets(self, part: Rollout, now: Prediction) -> tuple[Tensor, Tensor]:
        """Advantages and value targets, both [b, T]."""
        config = self.config
        values = now.values.detach()
        here, following = values[:, :-1], values[:, 1:]
        if config.with_vtrace:
            vs, advantages = vtrace(
                now.log_ratios.detach(),
                part.discounts,
                part.rewards,
                here,
                following,
                part.cuts,
                clip_rho=config.clip_rho,
                clip_pg_rho=config.clip_rho,
                clip_c=config.clip_c,
                lambda_=config.lambda_,
            )
            return advantages, vs
        advantages = gae(
            part.discounts, part.rewards, here, following, part.cuts, lambda_=config.lambda_
        )
        return advantages, advantages + here
