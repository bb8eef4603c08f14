"""How a vector environment begins the next episode of a lane whose episode has ended.

Gymnasium has three ways: in the step after the end, whose action is ignored (NEXT_STEP); in the
step that ends the episode, whose own observation is then in the info (SAME_STEP); or not at all, so
that the caller resets the lane (DISABLED).
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from sampler.errors import RAISED, ConfigError
from sampler.rollout_worker.vector_infos import has_final_observations

LOOK_SECONDS = 1.0  # how long an inspection waits for an episode to end
LOOK_STEPS = 1_000

DECLARE = 'set metadata["autoreset_mode"] to what it does (gymnasium.vector.AutoresetMode)'


def declared_mode(env: gym.vector.VectorEnv) -> AutoresetMode | None:
    """The mode declared in the environment's metadata; None if there is none.

    Raises ConfigError for a mode that Gymnasium does not have.
    """
    mode = (env.metadata or {}).get("autoreset_mode")
    if mode is None or isinstance(mode, AutoresetMode):
        return mode
    name = str(getattr(mode, "name", mode)).rpartition(".")[2]
    for known in AutoresetMode:
        if name in (known.name, known.name.lower(), known.value):
            return known
    names = ", ".join(known.name for known in AutoresetMode)
    raise ConfigError(f"the vector environment's autoreset_mode={mode!r} is not one of {names}")


def mode_at_end(
    declared: AutoresetMode | None, info: dict[str, Any], ended: np.ndarray
) -> AutoresetMode:
    """The mode, judged by the step in which the episodes of the lanes `ended`, bool [L], have
    ended.

    Raises ConfigError if the environment does something other than it declares.
    """
    same_step = has_final_observations(info, ended)
    if declared is None:
        return AutoresetMode.SAME_STEP if same_step else AutoresetMode.NEXT_STEP
    if same_step and declared is not AutoresetMode.SAME_STEP:
        raise ConfigError(
            f"the vector environment's autoreset_mode is {declared.name}, but it gives final "
            f"observations, as one does that resets in the same step; {DECLARE}"
        )
    return declared


def observed_mode(env: gym.vector.VectorEnv, seed: int) -> AutoresetMode | None:
    """The mode of an environment that has been reset, judged by what it declares and what it does.

    It is stepped with random actions until an episode has ended, for `LOOK_SECONDS` at most. None:
    it declares no mode, and no episode has ended. Errors that it raises meanwhile are ignored;
    workers will report them. Raises ConfigError if it contradicts itself.
    """
    mode = declared_mode(env)
    stop = time.monotonic() + LOOK_SECONDS
    try:
        env.action_space.seed(seed)
        for _ in range(LOOK_STEPS):
            *_, terminated, truncated, info = env.step(env.action_space.sample())
            ended = np.asarray(terminated, bool) | np.asarray(truncated, bool)
            if ended.any():
                found = mode_at_end(mode, info, ended)
                if mode is None and found is AutoresetMode.NEXT_STEP:
                    _check_next_step(env, ended)
                return found
            if time.monotonic() > stop:
                break
    except ConfigError:
        raise
    except RAISED:
        pass
    return mode


def _check_next_step(env: gym.vector.VectorEnv, ended: np.ndarray) -> None:
    """Raise ConfigError unless the next step only resets the lanes that `ended`, bool [L]."""
    _, rewards, terminated, truncated, _ = env.step(env.action_space.sample())
    played = (np.asarray(rewards) != 0) | np.asarray(terminated) | np.asarray(truncated)
    if (played & ended).any():
        raise ConfigError(
            "the vector environment does not say how it resets: it declares no autoreset_mode, "
            "gives no final_obs where an episode ends, and plays on in the step after that; "
            + DECLARE
        )
