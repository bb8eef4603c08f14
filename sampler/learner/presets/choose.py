"""Settings chosen for an environment: images (Atari), continuous control, or classic control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import gymnasium as gym

from sampler.config import SamplerConfig
from sampler.learner.algorithms.registry import ALGORITHMS, base_of, find_algorithm
from sampler.learner.config import LearnerConfig
from sampler.learner.presets import classic_control, continuous_control, goals, images
from sampler.learner.presets.settings import Settings
from sampler.models import ModelConfig
from sampler.models.factories import ModelMaker
from sampler.models.images import is_image
from sampler.plugins import over_defaults
from sampler.spaces import leaves

Family = Literal["images", "continuous control", "classic control"]

FAMILIES: Mapping[Family, Mapping[str, Settings]] = {
    "images": images.SETTINGS,
    "continuous control": continuous_control.SETTINGS,
    "classic control": classic_control.SETTINGS,
}

NEAREST = {True: "a2c", False: "appo"}
"""Whose sampler a learner that extends none of ours is given, by whether it is synchronous."""


@dataclass(frozen=True)
class Preset:
    """The settings chosen for one algorithm and one environment."""

    algorithm: str
    family: Family
    sampler: Mapping[str, Any]
    """Fields of SamplerConfig."""
    learner: LearnerConfig
    model: Any
    """The model's settings: a ModelConfig, or what a plug-in has instead."""

    def describe(self) -> str:
        """One line that describes the choice: what differs from the defaults of each component."""
        groups = {
            "sampler": self.sampler,
            "learner": differences(self.learner),
            "model": differences(self.model),
        }
        chosen = [
            f"{name} " + ", ".join(f"{key}={value}" for key, value in group.items())
            for name, group in groups.items()
            if group
        ]
        return f"{self.algorithm} with settings for {self.family}: {'; '.join(chosen)}"


def choose_preset(
    algorithm: str,
    observation_space: gym.Space,
    action_space: gym.Space,
    workers: int | None = None,
    envs_per_worker: int | None = None,
    groups: int | None = None,
    model: ModelMaker | None = None,
) -> Preset:
    """Settings of `algorithm` for an environment with these spaces.

    workers, envs_per_worker, groups: the caller's own values, if any; the batch is made to fit.
    model: what makes it, if not the algorithm's own. A plug-in has the settings of the algorithm
    that it extends; one that extends none has only those of the sampler.
    Raises ConfigError for an unknown algorithm.
    """
    kind = find_algorithm(algorithm)
    family = family_of(observation_space, action_space)
    base = base_of(kind.learner)
    chosen = settings_for(base or NEAREST[kind.learner.sync], family, observation_space)
    given = {"workers": workers, "envs_per_worker": envs_per_worker, "groups": groups}
    sampler = {
        "groups": 2,
        **chosen.sampler,
        **{name: value for name, value in given.items() if value is not None},
    }
    sampler["batch"] = rows_of_batch(sampler, kind.learner.sync)
    own = over_defaults(kind.config, chosen.learner, ALGORITHMS[base].config) if base else {}
    learner = dict(own)
    if hasattr(kind.config, "minibatches"):
        minibatches = learner.get("minibatches", kind.config.minibatches)
        if kind.learner.sync:  # as large as when they were tuned, whatever the batch
            usual = chosen.sampler["workers"] * chosen.sampler["envs_per_worker"]
            learner["minibatches"] = max(round(minibatches * sampler["batch"] / usual), 1)
        else:
            learner["minibatches"] = nearest_divisor(sampler["batch"], minibatches)
    if kind.learner.sync:
        sampler["sync"] = True
    config = kind.config(**learner)
    rollout = sampler.get("rollout", SamplerConfig.rollout)
    rows = config.rows(rollout, overlap=0)
    if rows != {"rollout": rollout, "overlap": 0}:
        sampler |= rows
    settings: Any = (model or kind.model).settings()
    if isinstance(settings, ModelConfig):
        own = over_defaults(type(settings), chosen.model, ModelConfig)
        settings = replace(settings, **own)
    return Preset(algorithm, family, sampler, config, settings)


def settings_for(algorithm: str, family: Family, observation_space: gym.Space) -> Settings:
    """The algorithm's settings for goals, if it has some, or else those of the family."""
    has_goals = (
        isinstance(observation_space, gym.spaces.Dict)
        and "desired_goal" in observation_space.spaces
    )
    if has_goals and algorithm in goals.SETTINGS:
        return goals.SETTINGS[algorithm]
    return FAMILIES[family][algorithm]


def family_of(observation_space: gym.Space, action_space: gym.Space) -> Family:
    """The kind of task that the spaces suggest: by images first, then by the actions."""
    if any(is_image(leaf.space) for leaf in leaves(observation_space, "obs")):
        return "images"
    if any(isinstance(leaf.space, gym.spaces.Box) for leaf in leaves(action_space, "actions")):
        return "continuous control"
    return "classic control"


def rows_of_batch(sampler: Mapping[str, Any], sync: bool) -> int:
    """One row of every lane if all wait for new weights anyway; otherwise as chosen, or the nearest
    multiple of the lanes of a group."""
    workers, envs, groups = (sampler[n] for n in ("workers", "envs_per_worker", "groups"))
    if sync:
        return workers * envs
    block = max(envs // min(groups, envs), 1)
    return max(round(sampler["batch"] / block), 1) * block


def nearest_divisor(rows: int, wanted: int) -> int:
    """The number nearest to `wanted` that divides `rows`, for minibatches of equal size."""
    divisors = [n for n in range(1, rows + 1) if rows % n == 0]
    return min(divisors, key=lambda n: abs(n - wanted))


def differences(config: Any) -> dict[str, Any]:
    """The fields of a dataclass instance that are not at their defaults."""
    values = {f.name: (getattr(config, f.name), f.default) for f in fields(config)}
    return {name: value for name, (value, default) in values.items() if value != default}
