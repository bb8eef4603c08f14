"""Playing the weights of a checkpoint in the environment of its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from torch import nn

from cli.options import Options
from sampler.errors import ConfigError
from sampler.evaluation import Evaluation, evaluate
from sampler.models import load_weights


def play(
    options: Options,
    state: Mapping[str, Any],
    *,
    episodes: int,
    lanes: int,
    seed: int,
    greedy: bool,
) -> Evaluation:
    """Evaluate the model of `state`, a checkpoint of a run with `options`, on the CPU.

    Raises ConfigError where the state does not fit, EnvError where the environment fails.
    """
    make_model = options.model_factory()

    def trained(observation_space: gym.Space, action_space: gym.Space) -> nn.Module:
        model = make_model(observation_space, action_space)
        try:
            load_weights(model, state["learner"]["model"])
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"the checkpoint holds no model ({type(error).__name__}: {error}); "
                "use one that fastrl-train wrote"
            ) from None
        return model

    return evaluate(
        trained,
        options.environment.env,
        env_kwargs=options.environment.kwargs(),
        episodes=episodes,
        lanes=lanes,
        seed=seed,
        greedy=greedy,
    )
