"""What the policy-gradient learners share: a batch as tensors, the forward pass, rewards, masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sampler.checks import check_flags, check_numbers
from sampler.errors import ConfigError
from sampler.learner.algorithms.stale_steps import StaleSteps
from sampler.learner.base import Learner, Publish
from sampler.learner.config import LearnerConfig
from sampler.learner.functional.losses import (
    Reduction,
    approximate_kl,
    entropy_loss,
    explained_variance,
    reduce,
)
from sampler.learner.functional.normalize import RewardScaler
from sampler.learner.metrics import lag_metrics
from sampler.models.distributions import distribution_for
from sampler.spaces import map_leaves

if TYPE_CHECKING:
    from sampler.batch import SequenceBatch
    from sampler.config import SamplerConfig

LOG_RATIO_BOUND = 20.0  # exp(20) is far beyond every clip, and its square does not overflow


@dataclass(frozen=True)
class ActorCriticConfig(LearnerConfig):
    """Settings of every policy-gradient learner."""

    lambda_: float = 0.95
    """Decay per step of the traces (GAE, V-trace): 1 trusts the rewards, 0 the next value alone."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus in the loss."""
    value_coef: float = 0.5
    """Weight of the value loss in the loss."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this before anything else."""
    reward_clip: float = 0.0
    """Rewards are clipped to [-reward_clip, reward_clip]; 0: not at all."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return, within +-10."""
    max_policy_lag: int = 1000
    """Steps made by weights more than this many versions old get no weight in the loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "lambda_", least=0, most=1)
        check_numbers(self, "entropy_coef", "value_coef", least=0)
        check_numbers(self, "reward_clip", least=0, infinite=True)
        check_numbers(self, "reward_scale")
        check_numbers(self, "max_policy_lag", whole=True, least=0)
        check_flags(self, "normalize_rewards")


@dataclass(frozen=True)
class Rollout:
    """A batch, or a part of one, on the learner's device.

    L is T + 1 where the last observation bootstraps, or T where only the loss is wanted.
    """

    obs: Any
    """[B, L, ...], in the space's dtypes, nested as the model wants it."""
    state: Tensor
    """[B, *state] float32: recurrent state before step 0."""
    is_first: Tensor
    """[B, L] bool: the observation begins an episode."""
    action_mask: Tensor | None
    """[B, L, A] bool."""
    actions: Any
    """[B, T, ...], nested like the action space."""
    log_probs: Tensor
    """[B, T] float32: of the actions when they were chosen."""
    values: Tensor
    """[B, T] float32: predicted when the actions were chosen."""
    rewards: Tensor
    """[B, T] float32: scaled, clipped or normalized as configured; 0 at invalid steps."""
    discounts: Tensor
    """[B, T] float32: gamma, or 0 where the episode terminated."""
    cuts: Tensor
    """[B, T] bool: no value or trace flows back from step t + 1."""
    real: Tensor
    """[B, T] bool: the transition happened."""
    valid: Tensor
    """[B, T] bool: the steps in the loss, which are real and not too old."""

    def __getitem__(self, rows: slice | Tensor) -> Rollout:
        """Some of the rows; a slice gives views."""
        return self.map(lambda tensor: tensor[rows])

    def steps(self, row: Tensor, step: Tensor) -> Rollout:
        """Single steps [n] as rows of length 1, for models without state."""
        timed = replace(self, state=self.valid)  # all but the state have a time axis
        picked = timed.map(lambda tensor: tensor[row, step].unsqueeze(1))
        return replace(picked, state=self.state[row])

    def map(self, function: Callable[[Tensor], Tensor]) -> Rollout:
        """This rollout with `function` applied to every tensor."""
        parts: dict[str, Any] = {
            name: None if part is None else map_leaves(function, part)
            for name, part in vars(self).items()
        }
        return Rollout(**parts)


@dataclass(frozen=True)
class Prediction:
    """The current model's outputs for a rollout."""

    distribution: Any
    """Distribution over the actions, [B, T]."""
    log_probs: Tensor
    """[B, T] float32: of the rollout's actions."""
    log_ratios: Tensor
    """[B, T] float32: log_probs minus those when acting, bounded; 0 at steps that are not real."""
    values: Tensor
    """[B, L] float32."""


class ActorCritic(Learner):
    """A learner whose model gives action-distribution parameters and values."""

    config: ActorCriticConfig

    def __init__(
        self,
        model: nn.Module,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: ActorCriticConfig,
        device: str = "auto",
        precision: str = "auto",
    ) -> None:
        super().__init__(model, observation_space, action_space, config, device, precision)
        self.make_distribution = distribution_for(model, action_space)
        self.reward_scaler = RewardScaler(config.gamma) if config.normalize_rewards else None
        self.lags: dict[str, float] = {}
        """Lag figures of the present batch."""
        self.stale = StaleSteps(config.max_policy_lag)

    @property
    def recurrent(self) -> bool:
        """Whether the model carries a state from step to step."""
        return self.model.initial_state(1).numel() > 0

    def check_sampler(self, config: SamplerConfig) -> None:
        super().check_sampler(config)
        if config.overlap:
            raise ConfigError(
                f"overlap={config.overlap} would make {type(self).__name__} learn twice from the "
                "same steps; use overlap=0"
            )

    def rollout(self, batch: SequenceBatch) -> Rollout:
        """`batch` as tensors on the learner's device: views where that is the CPU.

        Reports the batch's lag, and leaves steps older than `max_policy_lag` out of `valid`.
        """
        real = batch.mask
        lag = self._lag(batch)
        valid = self.stale.fresh(lag, real)
        self.lags = lag_metrics(lag, real, valid)
        rewards = self._rewards(batch)
        data = batch.to(self.device)
        state = data.rnn_state
        if state is None:
            state = self.model.initial_state(len(batch)).to(self.device)
        # An invalid step follows an episode's end, and may follow a step of a row that was given
        # up: in both cases the next observation's value is a bootstrap, and nothing flows back.
        cuts = batch.terminated | batch.truncated
        cuts[:, :-1] |= ~real[:, 1:]
        discounts = self.config.gamma * ~batch.terminated
        rollout = Rollout(
            obs=data.model_obs,
            state=state,
            is_first=data.is_first,
            action_mask=data.action_mask,
            actions=data.actions,
            log_probs=self._tensor(np.where(real, batch.log_probs, 0)),
            values=self._tensor(np.where(real, batch.values, 0)),
            rewards=self._tensor(rewards),
            discounts=self._tensor(discounts),
            cuts=self._tensor(cuts),
            real=data.mask,
            valid=self._tensor(valid),
        )
        kept = real.any(1)
        if not kept.all():  # rows that were given up may hold anything, including NaN
            rollout = rollout[self._tensor(kept.nonzero()[0])]
        if self.batches == 0:
            self._update_normalizer(rollout)
        return rollout

    def _update_normalizer(self, rollout: Rollout) -> None:
        """Update the model's running statistics with the observations that were acted on.

        This comes after learning from a batch, so that acting and learning use the same statistics,
        but before learning from the very first batch, which would otherwise not be normalized.
        """
        update = getattr(self.model, "update_normalizer", None)
        if update is not None:
            bootstrap = torch.zeros_like(rollout.real[:, :1])  # seen again as the next row's first
            update(rollout.obs, torch.cat((rollout.real, bootstrap), dim=1))

    def _lag(self, batch: SequenceBatch) -> np.ndarray:
        """[B, T] versions between acting and now. A learner without a version of its own takes the
        newest in the batch."""
        versions = batch.policy_version
        self.version = max(self.version, int(versions[batch.mask].max(initial=0)))
        return self.version - versions

    def _rewards(self, batch: SequenceBatch) -> np.ndarray:
        """[B, T] float32: the rewards to learn from; 0 where no transition happened."""
        rewards = np.where(batch.mask, batch.rewards, 0) * np.float32(self.config.reward_scale)
        if self.config.reward_clip:
            rewards = rewards.clip(-self.config.reward_clip, self.config.reward_clip)
        if self.reward_scaler is not None:
            self.reward_scaler.count(rewards, batch)
            rewards = self.reward_scaler.scale(rewards)
        return rewards

    def _tensor(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if tensor.is_floating_point():
            tensor = tensor.float()
        return tensor.to(self.device, non_blocking=True)

    def predict(self, part: Rollout) -> Prediction:
        """One forward pass over all observations of `part`."""
        with self.autocast():
            outputs, _ = self.model.unroll(part.obs, part.state, part.is_first)
        steps = part.valid.shape[1]
        mask = None if part.action_mask is None else part.action_mask[:, :steps]
        distribution = self.make_distribution(outputs["logits"][:, :steps].float(), mask)
        log_probs = distribution.log_prob(part.actions)
        # Steps that are not real may hold anything; bounds keep infinities out of the gradients.
        log_ratios = (log_probs - part.log_probs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        log_ratios = torch.where(part.real, log_ratios, 0.0)
        return Prediction(distribution, log_probs, log_ratios, outputs["values"].float())

    def descend(
        self,
        part: Rollout,
        now: Prediction,
        targets: Tensor,
        policy: Tensor,
        value: Tensor,
        extra: Mapping[str, Tensor],
        reduction: Reduction = "mean",
    ) -> None:
        """One optimiser step down policy + value_coef value - entropy_coef entropy.

        now: the model's outputs for `part`. targets: value targets [B, T]. policy, value: scalar
        losses. extra: further metrics. reduction: how the two losses were reduced, and how the
        entropy is; reported losses are means.
        """
        config, valid = self.config, part.valid
        entropies = now.distribution.entropy()
        bonus = config.entropy_coef * entropy_loss(entropies, valid, reduction)
        loss = policy + config.value_coef * value + bonus
        steps = valid.sum() if reduction == "sum" else 1
        losses = {
            "losses/policy_loss": policy / steps,
            "losses/value_loss": value / steps,
            "losses/entropy": reduce(entropies.detach(), valid),
        }
        if self.step(loss, {"values": now.values, "log_probs": now.log_probs, **losses}):
            # uses the values from before the update; after it they would fit better
            explained = explained_variance(part.values, targets, valid).nan_to_num(0.0)
            self.metrics.add(
                {
                    **losses,
                    "losses/approx_kl": approximate_kl(now.log_ratios.detach(), valid),
                    "losses/explained_variance": explained,
                    "losses/value_targets": reduce(targets, valid),
                    **extra,
                }
            )

    def finish(self, rollout: Rollout, publish: Publish) -> dict[str, float]:
        """Publish the weights learned from a batch; returns the metrics of its update by name."""
        if self.batches:
            self._update_normalizer(rollout)
        self.publish(publish)
        self.batches += 1
        return {
            **self.metrics.means(),
            **self.lags,
            "charts/learning_rate": self.learning_rate,
            "perf/stale_steps": float(self.stale.count),
            "perf/skipped_updates": float(self.guard.skipped),
        }

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["stale_steps"] = self.stale.count
        if self.reward_scaler is not None:
            state["reward_scaler"] = self.reward_scaler.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.stale.count = state["stale_steps"]
        if self.reward_scaler is not None:
            if "reward_scaler" not in state:
                raise ConfigError(
                    "the checkpoint has no reward statistics; set normalize_rewards=False"
                )
            self.reward_scaler.load_state_dict(state["reward_scaler"])


def row_slices(rows: int, parts: int) -> list[slice]:
    """`rows` cut into `parts` slices of equal length (some one longer where it does not divide)."""
    bounds = [rows * part // parts for part in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(bounds) if b > a]


def check_minibatches(minibatches: int, items: int, name: str = "rows") -> None:
    """Raise ConfigError where a batch's rows (or steps) are fewer than its minibatches."""
    if minibatches > items:
        raise ConfigError(
            f"minibatches={minibatches} exceeds the {items} {name} of a batch; "
            f"use at most {items}, or a larger batch"
        )


def check_equal_minibatches(minibatches: int, rows: int) -> None:
    """Raise ConfigError if some minibatch of a batch's rows would be larger than others, as each of
    its rows would count less."""
    check_minibatches(minibatches, rows)
    if rows % minibatches:
        divisors = [n for n in range(1, rows + 1) if rows % n == 0]
        below = max(n for n in divisors if n < minibatches)
        above = min(n for n in divisors if n > minibatches)
        raise ConfigError(
            f"minibatches={minibatches} does not divide the {rows} rows of a batch; "
            f"use {below} or {above}, or another batch"
        )
