"""PPO on synchronous batches (Schulman et al. 2017), with the published settings for Atari."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sampler.checks import check_flags, check_numbers
from sampler.learner.algorithms.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    Rollout,
    check_equal_minibatches,
    check_minibatches,
    row_slices,
)
from sampler.learner.base import Publish
from sampler.learner.functional.losses import approximate_kl, clip_fraction, ppo_loss, value_loss
from sampler.learner.functional.normalize import normalize_advantages
from sampler.learner.functional.targets import gae

if TYPE_CHECKING:
    from sampler.batch import SequenceBatch
    from sampler.config import SamplerConfig


@dataclass(frozen=True)
class PPOConfig(ActorCriticConfig):
    """Settings of PPO; the defaults are those for Atari: 8 lanes, rollouts of 128 steps."""

    learning_rate: float = 2.5e-4
    anneal_learning_rate: bool = True
    epsilon: float = 1e-5
    clip: float = 0.1
    """The policy ratio is clipped to [1 - clip, 1 + clip]."""
    value_clip: float = 0.1
    """Bound on the change of a value from the one before the update; 0: none."""
    epochs: int = 4
    """Passes over a batch."""
    minibatches: int = 4
    """Optimiser steps per pass, on shuffled steps (feed-forward) or shuffled rows (recurrent)."""
    normalize_advantages: bool = True
    """Give the advantages of a minibatch mean 0 and standard deviation 1."""
    target_kl: float = 0.0
    """Approximate KL from the acting policy, in nats, that ends the passes; 0: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "clip", above=0, infinite=True)
        check_numbers(self, "value_clip", "target_kl", least=0, infinite=True)
        check_numbers(self, "epochs", "minibatches", whole=True, least=1)
        check_flags(self, "normalize_advantages")


class PPO(ActorCritic):
    """Several passes over each batch made by the newest policy."""

    config: PPOConfig
    sync = True

    def check_sampler(self, config: SamplerConfig) -> None:
        super().check_sampler(config)
        if self.recurrent:
            check_equal_minibatches(self.config.minibatches, config.batch)
        else:  # of the real steps, whose number varies
            steps = config.batch * config.rollout
            check_minibatches(self.config.minibatches, steps, "steps")

    def update(self, batch: SequenceBatch, publish: Publish) -> dict[str, float]:
        rollout = self.rollout(batch)
        if not rollout.valid.any():
            return self.finish(rollout, publish)
        rollout, advantages = self.evaluated(rollout)
        targets = advantages + rollout.values
        for _ in range(self.config.epochs):
            divergence = 0.0
            for part, index in self.minibatches(rollout):
                divergence = self._learn(part, advantages[index], targets[index])
            if 0 < self.config.target_kl < divergence:
                break
        return self.finish(rollout, publish)

    def evaluated(self, rollout: Rollout) -> tuple[Rollout, Tensor]:
        """`rollout` with the values that the model gives it now, and its advantages [B, T].

        The last observation's value is not stored, so one pass computes all of them: it also gives
        a recurrent model its state there, and makes old and new values equally precise. It is made
        in as many parts as there are minibatches, and so takes no more memory than learning.
        """
        with torch.no_grad():
            parts = row_slices(len(rollout.valid), self.config.minibatches)
            values = torch.cat([self.predict(rollout[rows]).values for rows in parts])
        advantages = gae(
            rollout.discounts,
            rollout.rewards,
            values[:, :-1],
            values[:, 1:],
            rollout.cuts,
            lambda_=self.config.lambda_,
        )
        return replace(rollout, values=values[:, :-1]), advantages

    def minibatches(self, rollout: Rollout) -> Iterator[tuple[Rollout, Any]]:
        """Disjoint random parts of the valid steps, each with a function that picks the same steps
        from [B, T] tensors.

        Recurrent models get rows; others get single steps, as rows of length 1.
        """
        if self.recurrent:
            rows = torch.nonzero(rollout.valid.any(1)).squeeze(1)
            for choice in self._shuffled(rows):
                yield rollout[choice], choice
        else:
            for choice in self._shuffled(torch.nonzero(rollout.valid)):
                row, step = choice.unbind(1)
                # [n] -> [n, 1]
                yield rollout.steps(row, step), (row.unsqueeze(1), step.unsqueeze(1))

    def _shuffled(self, items: Tensor) -> Iterator[Tensor]:
        """`items` in random order, in as many parts as there are minibatches."""
        order = torch.randperm(len(items), generator=self.random).to(items.device)
        for part in row_slices(len(items), self.config.minibatches):
            yield items[order[part]]

    def _learn(self, part: Rollout, advantages: Tensor, targets: Tensor) -> float:
        """One optimiser step; returns the approximate KL from the acting policy if `target_kl` is
        set.

        part: as from `minibatches`; advantages, targets: [b, T] of its steps.
        """
        config, valid = self.config, part.valid
        now = self.predict(part)
        if config.normalize_advantages:
            advantages = normalize_advantages(advantages, valid)
        log_ratios = now.log_ratios
        policy = ppo_loss(
            log_ratios, torch.zeros_like(log_ratios), advantages, config.clip, mask=valid
        )
        values = now.values[:, : targets.shape[1]]
        value = value_loss(values, targets, part.values, config.value_clip or None, valid)
        clipped = clip_fraction(log_ratios.detach(), config.clip, mask=valid)
        self.descend(part, now, targets, policy, value, {"losses/clipfrac": clipped})
        return float(approximate_kl(log_ratios.detach(), valid)) if config.target_kl else 0.0
