"""Chooses the actions of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sampler import seeds
from sampler.errors import ModelError
from sampler.evaluation.games import Games
from sampler.models import distribution_for, epsilon_greedy
from sampler.rollout_worker.lanes import for_environment
from sampler.spaces import flatten, unflatten
from sampler.spaces.actions import to_env

EPSILON = 0.05
"""Share of random actions when a Q-model samples."""


@dataclass(frozen=True)
class Decision:
    """What the first lane's agent expected and did at one step."""

    value: float
    """The value of the state, or its highest Q-value of a permitted action, in the units that the
    learner gave them; NaN from a model without values."""
    actions: list[np.ndarray]
    """Leaves of the action space, each of its own shape, as the environment gets them."""
    is_first: bool
    """Whether an episode begins here."""


class Player:
    """Chooses actions with a model, whose recurrent state it keeps for every lane."""

    def __init__(self, model: Any, games: Games, seed: int, greedy: bool) -> None:
        self._model = model
        self._games = games
        self._greedy = greedy
        self._inputs = getattr(model, "inputs", ("obs",))
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._distribution = distribution_for(model, games.action_space)
        lanes = len(games.is_first)
        # one stream more than the lanes have
        self._generator = torch.Generator(self._device)
        self._generator.manual_seed(seeds.integer(seed, seeds.EVALUATION, lanes))
        self._state = self._model.initial_state(lanes).to(self._device)  # [L, *state]
        self._outputs: dict[str, Tensor] = {}
        self._mask: Tensor | None = None  # [n, A]

    @torch.inference_mode()
    def act(self, lanes: np.ndarray) -> list[np.ndarray]:
        """Actions for `lanes`, int [n]: the leaves [n, ...] of the action space."""
        games = self._games
        rows = torch.from_numpy(lanes).to(self._device)
        is_first = self._tensor(games.is_first[lanes])
        outputs, state = self._model.step(self._observations(lanes), self._state[rows], is_first)
        self._state[rows] = state
        self._outputs = outputs
        self._mask = (
            None if games.action_mask is None else self._tensor(games.action_mask[lanes, 0])
        )
        actions = self._choose({n: output.float() for n, output in outputs.items()}, self._mask)
        return [leaf.cpu().numpy() for leaf in flatten(games.action_space, actions)]

    @torch.inference_mode()
    def decision(self, actions: list[np.ndarray]) -> Decision:
        """What the first of the lanes just acted for expects, with the `actions` of all."""
        space = self._games.action_space
        played = for_environment(space, to_env(space), [leaf[:1] for leaf in actions])
        value = self._outputs["values"][0].item() if "values" in self._outputs else nan
        if "q_values" in self._outputs:
            q_values = self._outputs["q_values"][0]
            permitted = slice(None) if self._mask is None else self._mask[0]
            value = q_values[permitted].max().item()
        return Decision(value, [leaf[0] for leaf in played], bool(self._games.is_first[0]))

    def _observations(self, lanes: np.ndarray) -> Any:
        games = self._games
        newest = games.frame_stack == 1  # without a stack the second dimension is one of its own
        arrays = [array[lanes, 0] if newest else array[lanes] for array in games.observations]
        obs = unflatten(games.space, [self._tensor(array) for array in arrays])
        if self._inputs == ("obs",):
            return obs
        previous = [self._tensor(array[lanes]) for array in games.previous_actions]
        available = {
            "obs": obs,
            "previous_actions": unflatten(games.action_space, previous),
            "previous_rewards": self._tensor(games.previous_rewards[lanes]),
        }
        return {name: available[name] for name in self._inputs}

    def _choose(self, outputs: Mapping[str, Tensor], mask: Tensor | None) -> Any:
        """Actions [n, ...], nested like the space."""
        policy = "q_values" if "q_values" in outputs else "logits"
        if outputs[policy].isnan().any():
            raise ModelError(
                f"the model's output {policy!r} is NaN; play finite weights, of an older checkpoint"
            )
        if policy == "q_values":
            q_values = outputs["q_values"]
            epsilon = torch.full_like(q_values[:, 0], 0.0 if self._greedy else EPSILON)
            chosen = epsilon_greedy(q_values, epsilon, self._generator, mask)
            return chosen + int(self._games.action_space.start)
        distribution = self._distribution(outputs["logits"], mask)
        return distribution.mode() if self._greedy else distribution.sample(self._generator)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)
