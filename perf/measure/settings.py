"""Command-line settings that several profilers have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sampler import SamplerConfig


@dataclass(frozen=True)
class Measuring:
    """How long to measure, and where to write."""

    seconds: float = 10.0
    """Seconds of each measurement."""
    rounds: int = 5
    """Rounds; in each, everything that is compared is measured once."""
    json: Path | None = None
    """File to write the report to, as JSON."""


@dataclass(frozen=True)
class Sampling(Measuring):
    """The sampler to measure."""

    env: str = "BreakoutNoFrameskip-v4"
    """Gymnasium id."""
    workers: int = 2
    """Rollout worker processes."""
    envs_per_worker: int = 16
    """Lanes in each rollout worker."""
    groups: int = 2
    """Groups of lanes per worker."""
    policy_workers: int = 1
    """Policy worker processes; 0: rollout workers choose their own actions."""
    rollout: int = 32
    """Steps in a row."""
    batch: int = 32
    """Rows in a batch."""
    inference: Literal["random", "model"] = "random"
    """Random actions, or the default model (Nature CNN for frames)."""
    device: str = "auto"
    """Device of the policy workers: auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of inference."""
    seed: int = 0
    """Root of every random stream."""

    def sampler_config(self, **changes) -> SamplerConfig:
        """The sampler's configuration; `changes` are more of its fields."""
        names = (
            "env",
            "workers",
            "envs_per_worker",
            "groups",
            "policy_workers",
            "rollout",
            "batch",
            "inference",
            "device",
            "precision",
            "seed",
        )
        return SamplerConfig(**{name: getattr(self, name) for name in names}, **changes)


def describe(settings: Sampling) -> str:
    """The sampler in words."""
    return (
        f"{settings.env}, {settings.workers} workers x {settings.envs_per_worker} environments, "
        f"{settings.groups} groups, {settings.inference} actions"
    )
