"""What makes a model, by name: our own ones for an algorithm, or a user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from torch import nn

from sampler.errors import ConfigError
from sampler.plugins import load_plugin, settings_of

GROUP = "fastrl.models"
"""Entry points of installed packages that add models."""


@dataclass(frozen=True)
class NoSettings:
    """Of a model without settings."""


@dataclass(frozen=True)
class ModelMaker:
    """A factory of models, and the dataclass that holds its settings."""

    make: Callable[..., nn.Module]
    """(observation_space, action_space), then the settings if it has some -> the model."""
    settings: type = NoSettings

    def __call__(
        self, observation_space: gym.Space, action_space: gym.Space, settings: Any
    ) -> nn.Module:
        """The model for these spaces, as the model sees them."""
        if self.settings is NoSettings:
            return self.make(observation_space, action_space)
        return self.make(observation_space, action_space, settings)


def find_model(name: str) -> ModelMaker:
    """What `--model` names: `module:factory`, or an entry point of the group `fastrl.models`.

    The factory is a function or a class of modules, called with the two spaces and, if its third
    parameter is annotated with a dataclass, with an instance of that. Raises ConfigError.
    """
    make = load_plugin(name, GROUP, "model")
    if not callable(make) or isinstance(make, nn.Module):
        raise ConfigError(
            f"model={name!r} is a {type(make).__name__}, not a factory; give a function "
            "(observation_space, action_space) that returns the model, or its class"
        )
    return ModelMaker(make, settings_of(make, 2, f"model={name!r}") or NoSettings)
