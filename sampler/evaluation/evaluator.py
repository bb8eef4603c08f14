"""Evaluation: how well a model plays, apart from training.

A model is played on environments and seeds of its own, without learning and with its statistics
frozen. Every lane plays a number of games that is fixed beforehand, so long games count as much as
short ones. Scores are raw: unclipped rewards, summed over whole games.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from torch import nn

from sampler.errors import ConfigError
from sampler.evaluation.games import MAX_GAME_STEPS, Evaluation, Games
from sampler.evaluation.player import Decision, Player
from sampler.models import as_policy_model
from sampler.models.protocol import evaluation_mode

PROGRESS_INTERVAL = 1.0  # seconds


@dataclass(frozen=True)
class EvaluationProgress:
    """How far an evaluation has come."""

    games: int
    """Games that are over."""
    episodes: int
    """Games to play in total."""
    steps: int
    """Agent steps made so far, in all lanes."""


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
    progress: Callable[[EvaluationProgress], None] | None = None,
    max_game_steps: int = MAX_GAME_STEPS,
) -> Evaluation:
    """Play `episodes` whole games of `env` in `lanes` environments side by side.

    All lanes play equally many games; the first ones play one more if `episodes` is not a multiple
    of `lanes`. greedy: take the most likely action, or the highest Q-value; otherwise sample one (a
    Q-model acts at random with probability EPSILON). The random streams differ from those of
    training with the same `seed`. model: of the library's protocol or plain (`as_policy_model`), or
    a factory `make_model(observation_space, action_space)`. It stays on its device, and its
    training mode is restored afterwards. watch: called with the first lane's environment after each
    of its resets and steps, to render it. trace: called with each of that lane's decisions in the
    games that count. progress: called about once a second while games are played, and at the end.
    max_game_steps: agent steps, over all its episodes, within which a game must end.

    Raises ConfigError for numbers below 1, EnvError where an environment fails or a game does not
    end, ModelError where the model returns NaN. All environments are closed, whatever happens.
    """
    numbers = (("episodes", episodes), ("lanes", lanes), ("max_game_steps", max_game_steps))
    for name, value in numbers:
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
    lanes = min(lanes, episodes)
    with Games(env, env_kwargs or {}, episodes, lanes, seed, watch, max_game_steps) as games:
        if not isinstance(model, nn.Module):
            model = model(games.space, games.action_space)
        with evaluation_mode(model):
            actor = Player(as_policy_model(model), games, seed, greedy)
            games.reset()
            reported = time.monotonic()
            while len(playing := games.playing()):
                actions = actor.act(playing)
                if trace is not None and games.first_lane_decides:
                    trace(actor.decision(actions))
                games.step(playing, actions)
                if progress is not None and time.monotonic() - reported >= PROGRESS_INTERVAL:
                    progress(EvaluationProgress(games.finished, episodes, games.steps))
                    reported = time.monotonic()
        if progress is not None:
            progress(EvaluationProgress(games.finished, episodes, games.steps))
        return games.result()
