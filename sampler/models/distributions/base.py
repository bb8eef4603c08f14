"""The interface of action distributions, and helpers that leaf distributions share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

MASKED = -1e30
"""Logit of a masked choice: its probability is exactly 0, and products with 0 stay finite."""


class ActionDistribution(ABC):
    """A batch of distributions over actions.

    Leading dimensions are written [...]. Actions are a tensor [..., *shape] in the dtype and the
    values of a plain space, nested dicts and tuples of these for a Dict or Tuple space. All
    log-probabilities, entropies and divergences are float32 [...], in nats.
    """

    __slots__ = ()

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Actions drawn with `generator` alone (it must live on the parameters' device)."""

    @abstractmethod
    def mode(self) -> Any:
        """The actions of the deterministic policy."""

    @abstractmethod
    def log_prob(self, actions: Any) -> Tensor:
        """Log-probability (density for Box) of `actions` [...].

        Values outside a discrete space are read as its nearest value, so that steps which are
        masked out of a loss may hold anything.
        """

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy [...]."""

    @abstractmethod
    def kl(self, other: Any) -> Tensor:
        """KL(self || other) [...], `other` being of the same factory."""

    def sample_with_log_prob(self, generator: torch.Generator | None = None) -> tuple[Any, Tensor]:
        """(actions, log_prob(actions)), the latter equal to `log_prob` of the stored actions."""
        actions = self.sample(generator)
        return actions, self.log_prob(actions)


class DistributionFactory(ABC):
    """Makes distributions for one action space."""

    num_parameters: int
    """P: how many numbers a policy gives per action."""
    mask_size: int
    """A: the length of an action mask, 0 where nothing can be masked."""

    @abstractmethod
    def __call__(self, parameters: Tensor, action_mask: Tensor | None = None) -> ActionDistribution:
        """Distributions for `parameters` [..., P] of any float dtype and a mask [..., A] of bool.

        Masked choices (False) have probability 0, and entropy and KL stay finite. If a choice's
        mask has no True at all, everything is permitted; masked bits of MultiBinary are 0.
        """


class Constant:
    """A fixed array as a tensor on every device it is used on, copied there once."""

    def __init__(self, value: np.ndarray) -> None:
        self._value = value
        self._copies: dict[torch.device, Tensor] = {}

    def on(self, device: torch.device) -> Tensor:
        if device not in self._copies:
            with torch.inference_mode(False):  # an inference tensor cannot be used in training
                self._copies[device] = torch.from_numpy(self._value).to(device)
        return self._copies[device]


def torch_dtype(dtype: np.dtype) -> torch.dtype:
    """The torch dtype of a numpy dtype; TypeError where there is none."""
    return torch.from_numpy(np.empty(0, dtype)).dtype
