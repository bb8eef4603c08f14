"""The model protocol: the methods that acting and learning need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn


class PolicyModel(nn.Module, ABC):
    """A model that acts step by step and learns from whole sequences.

    Any module with these three methods follows it, without inheriting from this class. Outputs are
    a dict of float32 tensors by name: "logits" and "values" of a policy, or "q_values". States are
    float32; a model without memory has states of no entries, [n, 0].

    inputs: what `obs` holds: the observation itself for ("obs",), else a dict of these names.
    """

    inputs: tuple[str, ...] = ("obs",)

    @abstractmethod
    def initial_state(self, n: int) -> Tensor:
        """The state [n, ...] of n lanes before their first step."""

    @abstractmethod
    def step(self, obs: Any, state: Tensor, is_first: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """obs leaves [n, ...], state [n, ...], is_first bool [n] -> (outputs [n, ...], state)."""

    @abstractmethod
    def unroll(self, obs: Any, state: Tensor, is_first: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """obs leaves [B, T, ...], state [B, ...] before the first step, is_first bool [B, T] ->
        (outputs [B, T, ...], state after the last step). Where is_first is set, the state is
        reset first."""
