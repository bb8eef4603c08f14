"""The presets learn small tasks with known optima. Minutes each: run them by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from sampler import Sampler, SamplerConfig
from sampler.envs import make
from sampler.evaluation import Evaluation, evaluate
from sampler.learner.algorithms.registry import ALGORITHMS
from sampler.learner.presets import choose_preset
from sampler.learner.trainer import Trainer


def train(
    algorithm: str,
    env: str,
    steps: int,
    learner: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    **env_kwargs: Any,
) -> Evaluation:
    """100 greedy games after `steps` agent steps with the preset and some changes to it."""
    made = make(env, **env_kwargs)
    preset = choose_preset(algorithm, made.observation_space, made.action_space)
    kind = ALGORITHMS[algorithm]
    config = replace(preset.learner, **(learner or {}))
    model_config = replace(preset.model, **(model or {}))
    rows = {**preset.sampler, **config.rows(preset.sampler["rollout"], 0)}
    sampler_config = SamplerConfig(
        env=env, env_kwargs=env_kwargs, seed=1, device="cpu", precision="float32", **rows
    )
    with Sampler(sampler_config, partial(kind.model, settings=model_config)) as sampler:
        made_learner = kind.learner.for_sampler(sampler, config, "cpu")
        Trainer(sampler, made_learner, total_steps=steps).run()
    return evaluate(made_learner.model, env, env_kwargs=env_kwargs, episodes=100, lanes=10, seed=7)


def success(games: Evaluation, bits: int) -> float:
    """The share of BitFlip's games that reached the goal."""
    return float(np.mean(games.scores > -bits))


@pytest.mark.manual
def test_hindsight_flips_ten_bits_and_nothing_else_does():
    assert success(train("dqn", "fastrl/BitFlip-v0", 4_000, bits=10), 10) >= 0.9
    blind = train("dqn", "fastrl/BitFlip-v0", 4_000, {"hindsight": "none"}, bits=10)
    assert success(blind, 10) <= 0.2


@pytest.mark.manual
@pytest.mark.parametrize(("algorithm", "steps"), [("dqn", 50_000), ("apex", 60_000)])
def test_cartpole(algorithm, steps):
    assert train(algorithm, "CartPole-v1", steps).mean >= 475


@pytest.mark.manual
def test_r2d2_remembers_and_a_network_without_memory_cannot():
    env = "fastrl/RepeatPrevious-v0"
    assert train("r2d2", env, 60_000, k=4).mean >= 0.8
    assert train("r2d2", env, 20_000, model={"core": None}, k=4).mean <= -0.3
