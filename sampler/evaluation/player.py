"""Chooses the actions of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import torch

from sampler import seeds
from sampler.evaluation.games import Games
from sampler.models.inference import Choice, Inference
from sampler.models.protocol import device_of
from sampler.rollout_worker.lanes import for_environment
from sampler.spaces import flatten
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
    """Chooses actions with a model, and tells what it expects in the first lane."""

    def __init__(self, model: Any, games: Games, seed: int, greedy: bool) -> None:
        """`model`: of the library's protocol; it stays on its device."""
        self._games = games
        self._epsilon = 0.0 if greedy else EPSILON
        lanes = len(games.is_first)
        self._inference = Inference(
            model,
            games.space,
            games.action_space,
            lanes,
            device_of(model),
            # one stream more than the lanes have
            seed=seeds.integer(seed, seeds.EVALUATION, lanes),
            greedy=greedy,
        )
        self._choice: Choice | None = None
        self._mask: np.ndarray | None = None  # [n, A]

    @torch.inference_mode()
    def act(self, lanes: np.ndarray) -> list[np.ndarray]:
        """Actions for `lanes`, int [n]: the leaves [n, ...] of the action space.

        Raises ModelError if the model returns NaN, or EnvError if a non-finite observation is the
        cause.
        """
        games, inference = self._games, self._inference
        fields = games.fields(lanes)
        epsilon = np.full(len(lanes), self._epsilon, np.float32)
        self._choice = choice = inference.act(lanes, fields, games.is_first[lanes], epsilon)
        self._mask = fields.get("action_mask")
        policy = "q_values" if "q_values" in choice.outputs else "logits"
        inference.refuse_nan(
            {policy: choice.outputs[policy].cpu().numpy()},
            fields,
            lambda row: f"env {games.name}, evaluation lane {lanes[row]}",
            lambda: "; play finite weights, of an older checkpoint",
        )
        return [leaf.cpu().numpy() for leaf in flatten(games.action_space, choice.actions)]

    @torch.inference_mode()
    def decision(self, actions: list[np.ndarray]) -> Decision:
        """What the model expected in the first of the lanes just acted for; `actions` are those of
        all lanes."""
        assert self._choice is not None
        outputs, space = self._choice.outputs, self._games.action_space
        played = for_environment(space, to_env(space), [leaf[:1] for leaf in actions])
        value = outputs["values"][0].item() if "values" in outputs else nan
        if "q_values" in outputs:
            q_values = outputs["q_values"][0].cpu().numpy()
            value = float(q_values[slice(None) if self._mask is None else self._mask[0]].max())
        return Decision(value, [leaf[0] for leaf in played], bool(self._games.is_first[0]))
