"""Pictures of an environment, and a clear error if it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled

from sampler.envs import make
from sampler.errors import RAISED, ConfigError, one_line

RENDERING = {"render_mode": "rgb_array"}
"""Keyword arguments with which an environment is made for filming."""
WITHOUT = "evaluate it without --video"


def check_rendering(env: str | Callable[..., Any], env_kwargs: Mapping[str, Any]) -> None:
    """Raise ConfigError, with the reason, if an environment cannot be filmed.

    It is made for this, rendered once and closed. Raises EnvError if it cannot be made at all.
    """
    try:
        made = make(env, **env_kwargs, **RENDERING)
    except RAISED as error:
        make(env, **env_kwargs).close()  # its own error, if rendering is not to blame
        raise _refusal(env, error.__cause__ or error) from error
    with closing(made):
        try:
            made.reset(seed=0)
            picture_of(made)
        except ConfigError:
            raise
        except RAISED as error:
            raise _refusal(env, error) from error


def picture_of(env: Any) -> np.ndarray:
    """What the environment shows now, uint8 [height, width, 3]; a vector environment's first lane.

    Raises ConfigError if that is not such a picture.
    """
    shown = env.render()
    picture = shown[0] if isinstance(shown, list | tuple) and shown else shown
    if (
        not isinstance(picture, np.ndarray)
        or picture.dtype != np.uint8
        or picture.ndim != 3
        or picture.shape[2] != 3
    ):
        raise ConfigError(f"{env} renders no RGB pictures; {WITHOUT}")
    return picture


def _refusal(env: Any, cause: BaseException) -> ConfigError:
    if isinstance(cause, DependencyNotInstalled):
        return ConfigError(
            f"env={env!r} cannot render: {one_line(cause)}; "
            f'pip install "fastrl[video]" brings what most environments need, or {WITHOUT}'
        )
    return ConfigError(f"env={env!r} cannot render: {one_line(cause)}; {WITHOUT}")
