"""From an action space to its distribution; Dict and Tuple spaces are products of their leaves."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sampler.errors import ConfigError
from sampler.models.distributions.base import ActionDistribution, DistributionFactory
from sampler.models.distributions.discrete import (
    BernoulliFactory,
    CategoricalFactory,
    MultiCategoricalFactory,
)
from sampler.models.distributions.gaussian import GaussianFactory
from sampler.spaces import Leaf, flatten, leaves, unflatten

BoundedActions = Literal["clipped", "squashed"]
ActionUnits = Literal["environment", "normalized"]


def make_distribution(
    action_space: gym.Space,
    bounded_actions: BoundedActions = "clipped",
    action_units: ActionUnits = "environment",
) -> DistributionFactory:
    """The distribution factory of `action_space`.

    bounded_actions: how the bounds of a Box are kept. action_units: the units of the means and
    standard deviations of Gaussians that are not squashed: the environment's own, or "normalized"
    ones, in which every bounded dimension spans [-1, 1].

    Raises ConfigError for spaces without a policy distribution (a Box of integers, Text, ...).
    """
    if bounded_actions not in ("clipped", "squashed"):
        raise ConfigError(f"bounded_actions={bounded_actions!r} is not one of clipped, squashed")
    if action_units not in ("environment", "normalized"):
        raise ConfigError(f"action_units={action_units!r} is not one of environment, normalized")
    factories = [
        leaf_distribution(leaf, bounded_actions, action_units)
        for leaf in leaves(action_space, "actions")
    ]
    if isinstance(action_space, spaces.Dict | spaces.Tuple):
        return JointFactory(action_space, factories)
    return factories[0]


def distribution_for(model: nn.Module, action_space: gym.Space) -> DistributionFactory:
    """`make_distribution` with the model's own `bounded_actions` and `action_units`.

    Without these attributes, actions are clipped and in the environment's units. The library's own
    models use normalized units. Policy workers and learners both use this function, so that they
    agree.
    """
    return make_distribution(
        action_space,
        getattr(model, "bounded_actions", "clipped"),
        getattr(model, "action_units", "environment"),
    )


def leaf_distribution(
    leaf: Leaf, bounded_actions: BoundedActions, action_units: ActionUnits = "environment"
) -> DistributionFactory:
    """The factory of one plain space."""
    space = leaf.space
    if isinstance(space, spaces.Discrete):
        return CategoricalFactory(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategoricalFactory(space)
    if isinstance(space, spaces.MultiBinary):
        return BernoulliFactory(space)
    if isinstance(space, spaces.Box) and np.issubdtype(leaf.dtype, np.floating):
        return GaussianFactory(space, bounded_actions == "squashed", action_units == "normalized")
    raise ConfigError(
        f"{leaf.name}: a Box of {leaf.dtype} has no policy distribution; "
        "use MultiDiscrete for whole numbers, or a float Box"
    )


class Joint(ActionDistribution):
    """Independent distributions for the leaves of a Dict or Tuple space."""

    __slots__ = ("parts", "space")

    def __init__(self, space: gym.Space, parts: list[ActionDistribution]) -> None:
        self.space = space
        self.parts = parts

    def sample(self, generator: torch.Generator | None = None) -> Any:
        return unflatten(self.space, [part.sample(generator) for part in self.parts])

    def sample_with_log_prob(self, generator: torch.Generator | None = None) -> tuple[Any, Tensor]:
        pairs = [part.sample_with_log_prob(generator) for part in self.parts]
        return unflatten(self.space, [a for a, _ in pairs]), total([p for _, p in pairs])

    def mode(self) -> Any:
        return unflatten(self.space, [part.mode() for part in self.parts])

    def log_prob(self, actions: Any) -> Tensor:
        pairs = zip(self.parts, flatten(self.space, actions), strict=True)
        return total([part.log_prob(action) for part, action in pairs])

    def entropy(self) -> Tensor:
        return total([part.entropy() for part in self.parts])

    def kl(self, other: Joint) -> Tensor:
        return total([p.kl(q) for p, q in zip(self.parts, other.parts, strict=True)])


def total(terms: list[Tensor]) -> Tensor:
    """The sum of one or more tensors."""
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


class JointFactory(DistributionFactory):
    """Parameters and masks: those of the leaves one after the other, in the order of `leaves`."""

    def __init__(self, space: gym.Space, factories: list[DistributionFactory]) -> None:
        if not factories:
            raise ConfigError(f"the action space {space} has no entries; give it at least one")
        self.num_parameters = sum(factory.num_parameters for factory in factories)
        self.mask_size = sum(factory.mask_size for factory in factories)
        self._space = space
        self._factories = factories
        self._parameter_sizes = [factory.num_parameters for factory in factories]
        self._mask_sizes = [factory.mask_size for factory in factories]

    def __call__(self, parameters: Tensor, action_mask: Tensor | None = None) -> Joint:
        pieces = parameters.split(self._parameter_sizes, dim=-1)
        if action_mask is None:
            parts = [f(piece) for f, piece in zip(self._factories, pieces, strict=True)]
        else:
            masks = action_mask.split(self._mask_sizes, dim=-1)
            parts = [f(p, m) for f, p, m in zip(self._factories, pieces, masks, strict=True)]
        return Joint(self._space, parts)
