"""The settings of an algorithm for one family of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Settings that differ from the defaults of each component."""

    sampler: Mapping[str, Any]
    """Fields of SamplerConfig. `batch` is left out if it has to be a row of every lane."""
    learner: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the algorithm's configuration."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ModelConfig."""


UNIFORM_REPLAY: Mapping[str, Any] = {"n_step": 1, "alpha": 0.0, "exploration": "anneal"}
"""Settings that turn Ape-X into the DQN of Mnih et al. 2015."""
ADAM: Mapping[str, Any] = {"optimiser": "adam", "epsilon": 1e-8, "max_grad_norm": 10.0}
"""The optimiser of most later work with DQN."""
