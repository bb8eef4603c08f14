"""Evaluation: how well a model plays, apart from training.

A model is played on environments and seeds of its own, without learning and with its statistics
frozen. Every lane plays a number of games that is fixed beforehand, so long games count as much as
short ones. Scores are raw: unclipped rewards, summed over whole games.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
from torch import nn

from sampler.errors import ConfigError
from sampler.evaluation.games import Evaluation, Games
from sampler.evaluation.player import Decision, Player
from sampler.models import as_policy_model


def evaluate(
    model: nn.Module | Callable[[gym.Space, gym.Space], nn.Module],
    env: str | Callable[..., Any],
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    episodes: int = 10,
    lanes: int = 5,
    seed: int = 0,
    greedy: bool = True,
    watch: Callable[[Any], None] | None = None,
    trace: Callable[[Decision], None] | None = None,
) -> Evaluation:
    """Play `episodes` whole games of `env` in `lanes` environments side by side.

    Lanes play equally many games, the first of them one more where `episodes` is no multiple.
    greedy: take the most likely action, or the highest Q-value; otherwise draw one, a Q-model at
    random with probability EPSILON. The streams of `seed` differ from those of training with it.
    model: of the library's protocol or plain (`as_policy_model`), or a factory
    `make_model(observation_space, action_space)`. It stays on its device and ends in the mode,
    training or not, that it came in. watch: called with the first lane's environment after each of
    its resets and steps, to render it. trace: called with each of that lane's decisions in the
    games that count.

    Raises ConfigError for numbers below 1, EnvError where an environment fails.
    """
    for name, value in (("episodes", episodes), ("lanes", lanes)):
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    with Games(env, env_kwargs or {}, episodes, min(lanes, episodes), seed, watch) as games:
        if not isinstance(model, nn.Module):
            model = model(games.space, games.action_space)
        was_training = model.training
        model.eval()
        try:
            actor = Player(as_policy_model(model), games, seed, greedy)
            games.reset()
            while len(playing := games.playing()):
                actions = actor.act(playing)
                if trace is not None and games.first_lane_decides:
                    trace(actor.decision(actions))
                games.step(playing, actions)
        finally:
            model.train(was_training)
        return games.result()
