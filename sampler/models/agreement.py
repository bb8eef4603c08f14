"""Checks that the learner's log-probabilities agree with those of the policy worker.

Importance ratios compare the log-probabilities that a learner computes with those stored when the
actions were chosen. With the same weights they must be equal; if they are not, learning goes wrong
without an error. The first batch of a sampler is therefore checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sampler.models.action_evaluation import evaluate_actions
from sampler.models.distributions import distribution_for
from sampler.models.protocol import device_of, evaluation_mode
from sampler.spaces import map_leaves

if TYPE_CHECKING:
    from sampler.batch import SequenceBatch

ROWS = 2  # rows checked: enough, and fast
SHARE = 0.05  # of the steps that may differ by more than rounding
TOLERANCE = {torch.float32: 0.01, torch.bfloat16: 0.3}  # relative to 1 + |log-probability|


@torch.no_grad()
def disagreement(
    model: Any, batch: SequenceBatch, published: Mapping[str, Tensor], precision: torch.dtype
) -> str | None:
    """Why the log-probabilities of `batch`, made with the weights `published`, differ from those
    that `model` computes; None if they agree, or if `model` cannot be unrolled.

    precision: of inference. The model's mode, state and random generators stay as they are.
    """
    part = batch[:ROWS].to(device_of(model))
    stored, real = part.log_probs, part.mask
    if not real.any():
        return None

    def agrees(log_probs: Tensor) -> bool:
        bound = TOLERANCE[precision] * (1 + stored.abs())
        close = (log_probs - stored).abs() <= bound  # False for NaN
        return float((~close[real]).float().mean()) <= SHARE

    unrolled = stepped = None
    with evaluation_mode(model):
        with suppress(Exception):  # its error shows when a learner calls it
            unrolled = evaluate_actions(model, part).log_probs
        if unrolled is None or agrees(unrolled):
            return None
        with suppress(Exception):
            stepped = _stepped(model, part)
    difference = (unrolled - stored)[real].abs().max()
    found = (
        f"{type(model).__name__}: log-probabilities that a learner computes for the first batch "
        f"differ by up to {difference:.3g} from those stored with the actions, with the same "
        "weights, so importance ratios will be wrong"
    )
    own = model.state_dict()
    if any(not torch.equal(own[name].cpu(), saved.cpu()) for name, saved in published.items()):
        return (
            f"{type(model).__name__}: the weights of sampler.model are not those that actions are "
            "chosen with; call sampler.publish(model) after changing them"
        )
    if stepped is not None and agrees(stepped):
        return f"{found}: unroll() does not return what step() returns, step by step; correct it"
    return (
        f"{found}: step() does not return the same for the same inputs, state and weights; let it "
        "depend on nothing else (random numbers, attributes that are no buffers)"
    )


def _stepped(model: nn.Module, batch: SequenceBatch) -> Tensor:
    """Log-probabilities [B, T] of the batch's actions by `model.step`."""
    policy: Any = model
    rows, steps = batch.mask.shape
    state = policy.initial_state(rows) if batch.rnn_state is None else batch.rnn_state
    state = state.to(batch.mask.device)
    distribution_of = distribution_for(model, batch.action_space)
    obs, actions, masks = batch.model_obs, batch.actions, batch.action_mask
    log_probs = []
    for t in range(steps):
        first = batch.is_first[:, t]
        state = state.clone()
        state[first] = 0.0
        outputs, state = policy.step(_at(obs, t), state, first)
        mask = None if masks is None else masks[:, t]
        log_probs.append(distribution_of(outputs["logits"], mask).log_prob(_at(actions, t)))
    return torch.stack(log_probs, dim=1)


def _at(value: Any, t: int) -> Any:
    return map_leaves(lambda leaf: leaf[:, t], value)
