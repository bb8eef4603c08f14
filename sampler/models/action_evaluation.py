"""The present model's evaluation of a batch's actions, for the losses of a custom learner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from sampler.errors import ConfigError
from sampler.models.distributions import distribution_for
from sampler.models.protocol import as_policy_model
from sampler.spaces import map_leaves

if TYPE_CHECKING:
    from sampler.batch import SequenceBatch


class ActionEvaluation(NamedTuple):
    """The result of `evaluate_actions`: float32, with gradients."""

    log_probs: Tensor
    """[B, T]: of the batch's actions; 0 where no transition happened (`mask` is False)."""
    entropy: Tensor
    """[B, T], in nats: of the distributions they were chosen from; 0 where no transition
    happened."""
    values: Tensor
    """[B, T+1]: of all observations. The one after step t, which may be a final observation, is at
    t + 1."""


def evaluate_actions(
    model: nn.Module, batch: SequenceBatch, action_space: gym.Space | None = None
) -> ActionEvaluation:
    """Log-probabilities and entropies of the batch's actions, and values, in one forward pass.

    model: gives "logits" and "values", by the library's protocol or as a plain module
    obs -> (logits, values). batch: `SequenceBatch.to(device)`, on the model's device. action_space:
    the batch's own by default.

    All inputs with which the actions were chosen are used: the recurrent state that each row began
    with, previous actions and rewards if the model asks for them, action masks, and the model's
    `bounded_actions` and `action_units`. A batch made with the model's present weights therefore
    has `log_probs` equal to `batch.log_probs`, up to rounding. Rows that were given up, which may
    hold anything, are left out of the forward pass; all their entries are 0.

    Raises ConfigError for a batch of numpy arrays, and for a model with Q-values.
    """
    if not isinstance(batch.mask, Tensor):
        raise ConfigError("the batch holds numpy arrays; evaluate actions of batch.to(device)")
    policy: Any = as_policy_model(model)
    rows, steps = batch.mask.shape
    kept = batch.mask.any(1).nonzero().squeeze(1)
    whole = len(kept) == rows

    def pick(tensor: Tensor) -> Tensor:
        return tensor if whole else tensor[kept]

    state = policy.initial_state(rows) if batch.rnn_state is None else batch.rnn_state
    obs, is_first = map_leaves(pick, batch.model_obs), pick(batch.is_first)
    outputs, _ = policy.unroll(obs, pick(state.to(is_first.device)), is_first)
    if "logits" not in outputs or "values" not in outputs:
        raise ConfigError(
            f"{type(model).__name__} gives {', '.join(sorted(outputs))}; actions are evaluated by "
            "models that give logits and values"
        )
    distribution_of = distribution_for(policy, action_space or batch.action_space)
    mask = None if batch.action_mask is None else pick(batch.action_mask)[:, :steps]
    distribution = distribution_of(outputs["logits"][:, :steps].float(), mask)
    log_probs = distribution.log_prob(map_leaves(pick, batch.actions))
    happened = pick(batch.mask)
    parts = [
        torch.where(happened, log_probs, 0.0),
        torch.where(happened, distribution.entropy(), 0.0),
        outputs["values"].float(),
    ]
    if not whole:
        parts = [p.new_zeros(rows, p.shape[1]).index_copy(0, kept, p) for p in parts]
    return ActionEvaluation(*parts)
