"""The recurrent state that a replayed sequence begins with: stored, zero or learned."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

import gymnasium as gym
import torch
from torch import Tensor, nn

from sampler.batch import SequenceBatch
from sampler.learner.gradient_descent import GradientDescent
from sampler.models import ModelConfig
from sampler.models.observations import Encoder, Observations
from sampler.spaces import map_leaves

Kind = Literal["stored", "zero", "learned"]


class StateNetwork(nn.Module):
    """Predicts the state before a sequence from its first observation."""

    def __init__(self, observation_space: gym.Space, state_shape: tuple[int, ...]) -> None:
        super().__init__()
        config = ModelConfig()
        self.observations = Observations(observation_space, config)
        config = config.resolved(bool(self.observations.images), q_network=True)
        self.encoder = Encoder(self.observations, config)
        self.state_shape = state_shape
        self.linear = nn.Linear(self.encoder.size, prod(state_shape))

    def forward(self, obs: Any) -> Tensor:
        """obs: leaves [n, ...] -> states [n, *state_shape] float32."""
        return self.linear(self.encoder(*self.observations(obs))).view(-1, *self.state_shape)


class InitialStates:
    """The states that sequences begin with.

    stored: the actor's own state at that step. zero: an empty memory. learned: the prediction of a
    small network from the first observation, trained beside the model to predict stored states.
    """

    def __init__(
        self,
        kind: Kind,
        model: Any,
        observation_space: gym.Space,
        device: torch.device,
        learning_rate: float,
        max_non_finite: int,
    ) -> None:
        """learning_rate, max_non_finite: for the network's own updates."""
        self.kind = kind
        self._model = model
        shape = tuple(model.initial_state(1).shape[1:])
        self._recurrent = prod(shape) > 0
        self._network: StateNetwork | None = None
        if kind == "learned" and self._recurrent:
            self._network = StateNetwork(observation_space, shape).to(device)
            optimiser = torch.optim.Adam(self._network.parameters(), learning_rate)
            self._descent = GradientDescent(self._network, optimiser, 0.0, max_non_finite)

    def __call__(self, batch: SequenceBatch) -> Tensor:
        """States [B, *state] before the first step of the rows of `batch` (tensors)."""
        if self.kind == "zero" or not self._recurrent:
            return self._model.initial_state(len(batch))
        if self._network is None:
            return batch["rnn_state"]
        with torch.no_grad():
            return self._network(self._first(batch))

    def learn(self, batch: SequenceBatch) -> Tensor | None:
        """One step of the network towards the stored states; returns its squared error, a scalar.

        None without a network, or if the error is not finite, in which case nothing changes. Rows
        that begin an episode are ignored: their state is known to be zero. Raises NonFiniteError if
        too many errors in a row are not finite.
        """
        if self._network is None:
            return None
        errors = self._network(self._first(batch)) - batch.rnn_state
        known = batch.is_first[:, :1].flatten()
        loss = errors.square().flatten(1).mean(1).masked_fill(known, 0.0).mean()
        made = self._descent.step(loss, {"losses/initial_state": loss}) is not None
        return loss.detach() if made else None

    @staticmethod
    def _first(batch: SequenceBatch) -> Any:
        return map_leaves(lambda leaf: leaf[:, 0], batch.obs)

    def state_dict(self) -> dict[str, Any]:
        if self._network is None:
            return {}
        return {
            "network": self._network.state_dict(),
            "optimiser": self._descent.optimiser.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._network is not None:
            self._network.load_state_dict(state["network"])
            self._descent.optimiser.load_state_dict(state["optimiser"])
