"""A2C: the synchronous advantage actor-critic (Mnih et al. 2016, without the asynchrony)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sampler.checks import check_flags
from sampler.learner.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from sampler.learner.base import Publish
from sampler.learner.functional.losses import policy_gradient_loss, value_loss
from sampler.learner.functional.normalize import normalize_advantages
from sampler.learner.functional.targets import gae

if TYPE_CHECKING:
    from sampler.batch import SequenceBatch


@dataclass(frozen=True)
class A2CConfig(ActorCriticConfig):
    """Settings of A2C; the defaults are the usual ones for Atari: 16 lanes, rollouts of 5 steps."""

    learning_rate: float = 7e-4
    anneal_learning_rate: bool = True
    optimiser: Literal["adam", "rmsprop", "rmsprop_tf"] = "rmsprop_tf"
    epsilon: float = 1e-5
    lambda_: float = 1.0
    normalize_advantages: bool = False
    """Give the advantages of a batch mean 0 and standard deviation 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flags(self, "normalize_advantages")


class A2C(ActorCritic):
    """One optimiser step on each batch made by the newest policy.

    Nothing is clipped. The approximate KL from the acting policy is 0, as both are the same.
    """

    config: A2CConfig
    sync = True

    def update(self, batch: SequenceBatch, publish: Publish) -> dict[str, float]:
        part = self.rollout(batch)
        if part.valid.any():
            now = self.predict(part)
            values = now.values.detach()
            here, following = values[:, :-1], values[:, 1:]
            advantages = gae(
                part.discounts,
                part.rewards,
                here,
                following,
                part.cuts,
                lambda_=self.config.lambda_,
            )
            targets = advantages + here
            if self.config.normalize_advantages:
                advantages = normalize_advantages(advantages, part.valid)
            policy = policy_gradient_loss(now.log_probs, advantages, part.valid)
            value = value_loss(now.values[:, :-1], targets, mask=part.valid)
            self.descend(part, now, targets, policy, value, {})
        return self.finish(part, publish)
