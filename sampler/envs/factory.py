"""`make`: an environment from an id or a callable, with errors a user can act on."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from sampler.errors import RAISED, ConfigError, EnvError, FastrlError
from sampler.process import registrations

ALE_ENTRY_POINT = "ale_py.env:AtariEnv"
MODULES = {
    "BabyAI-": "minigrid",
    "MiniGrid-": "minigrid",
    "MiniWorld-": "miniworld",
    "Fetch": "gymnasium_robotics",
    "highway-": "highway_env",
}
"""Modules that register well-known ids, by what these begin with."""


def make(
    env: str | Callable[..., gym.Env | gym.vector.VectorEnv], **kwargs: Any
) -> gym.Env | gym.vector.VectorEnv:
    """The environment named by an id, or returned by a callable, made with `kwargs`.

    Atari ids (`BreakoutNoFrameskip-v4`, `ALE/Breakout-v5`) give `sampler.envs.atari.AtariEnv`,
    whose kwargs are the fields of `AtariProtocol`; nothing needs to be imported or registered for
    them. Other ids, `module:id` included, are made by Gymnasium.

    Raises ConfigError for an unknown id, naming the closest known ones, and for a keyword that the
    environment does not have; EnvError if the constructor raises anything else, or a callable
    returns something that is no environment.
    """
    if not isinstance(env, str):
        return _checked(_name(env), partial(env, **kwargs), kwargs)
    if ":" in env:
        module, _, env = env.partition(":")
        _import(module)
        registrations.restore()
    spec = _spec(env)
    if spec.entry_point == ALE_ENTRY_POINT and not _skips_at_random(spec):
        from sampler.envs.atari import make_atari

        return _checked(env, partial(make_atari, spec, **kwargs), kwargs)
    return _checked(env, partial(gym.make, spec, disable_env_checker=True, **kwargs), kwargs)


def _spec(env_id: str) -> EnvSpec:
    """The registered spec of `env_id`; the Atari ids join the registry when first needed."""
    if env_id not in gym.registry and importlib.util.find_spec("ale_py"):
        importlib.import_module("ale_py")  # registers the Atari ids
    try:
        return gym.registry[env_id]
    except KeyError:
        raise ConfigError(f"env={env_id!r} is not a known id{_closest(env_id)}") from None


def _skips_at_random(spec: EnvSpec) -> bool:
    """Whether an Atari id (`Breakout-v4`) has a random frame skip; Gymnasium makes those."""
    return isinstance(spec.kwargs.get("frameskip"), tuple)


def _closest(env_id: str) -> str:
    """A remedy: the module that registers `env_id`, or up to three registered ids that resemble it,
    ignoring case."""
    for beginning, module in MODULES.items():
        if env_id.startswith(beginning) and module not in sys.modules:
            missing = importlib.util.find_spec(module) is None
            install = f" (after pip install {module})" if missing else ""
            return f"; did you mean {module}:{env_id}{install}?"
    known = {
        name.lower(): name for name, spec in gym.registry.items() if not _skips_at_random(spec)
    }
    matches = difflib.get_close_matches(env_id.lower(), known, n=3, cutoff=0.5)
    if not matches:
        return "; pass a Gymnasium id, or a callable that returns an environment"
    return f"; did you mean {' or '.join(known[match] for match in matches)}?"


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except RAISED as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
        remedy = "; install it, or start from the folder that holds it" if absent else ""
        raise ConfigError(
            f"env module {module!r} cannot be imported: {_line(error)}{remedy}"
        ) from error


def _checked(
    name: str,
    build: Callable[[], gym.Env | gym.vector.VectorEnv],
    kwargs: Mapping[str, Any],
) -> gym.Env | gym.vector.VectorEnv:
    try:
        made = build()
    except FastrlError:
        raise
    except RAISED as error:
        for keyword in kwargs:
            if f"unexpected keyword argument '{keyword}'" in str(error):
                raise ConfigError(
                    f"env {name} has no argument {keyword!r} ({_line(error)}); correct env_kwargs"
                ) from error
        raise EnvError(f"env {name} could not be made: {_line(error)}") from error
    if not isinstance(made, gym.Env | gym.vector.VectorEnv):
        raise EnvError(
            f"env {name} returned {type(made).__module__}.{type(made).__qualname__}; "
            "return a gymnasium.Env or gymnasium.vector.VectorEnv"
        )
    return made


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{function.__module__}.{name}" if hasattr(function, "__module__") else name


def _line(error: BaseException) -> str:
    """An exception on one line: its type and its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
