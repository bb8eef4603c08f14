"""The caller's registry of Gymnasium ids, sent along to the processes that make environments.

Ids that a script registers exist only in its own process: a worker would not know them, or would
make a stock environment of the same id instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cloudpickle
import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from sampler.process.pickling import dumps

_received: dict[str, EnvSpec] = {}


class Registrations:
    """Stands for the whole registry: unpickled in another process, it registers all ids there."""

    def __init__(self, needed: str | None):
        """`needed`: the id that will be made; others are left out if they cannot be pickled."""
        self.needed = needed

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        sent = {}
        for env_id, spec in gym.registry.items():
            try:
                sent[env_id] = dumps(_portable(spec))
            except Exception:
                if env_id == self.needed:
                    raise
        return _receive, (self.needed, sent)

    def __deepcopy__(self, memo: dict[int, Any]) -> Registrations:
        return self


class SentEntryPoint:
    """An entry point that is unpickled when an environment is made: its module may be expensive to
    import, and most are never needed."""

    def __init__(self, entry_point: Callable[..., Any]):
        self._pickled = dumps(entry_point)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return cloudpickle.loads(self._pickled)(*args, **kwargs)


def restore() -> None:
    """Register the received ids again: a module imported since may have replaced them."""
    gym.registry.update(_received)


def _receive(needed: str | None, sent: dict[str, bytes]) -> Registrations:
    _received.update({env_id: cloudpickle.loads(spec) for env_id, spec in sent.items()})
    restore()
    return Registrations(needed)


def _portable(spec: EnvSpec) -> EnvSpec:
    return replace(
        spec,
        entry_point=_entry_point(spec.entry_point),
        vector_entry_point=_entry_point(spec.vector_entry_point),
    )


def _entry_point(entry_point: Any) -> Any:
    if isinstance(entry_point, str) and entry_point.startswith("__main__:"):
        # Other processes do not run the script again.
        entry_point = getattr(sys.modules["__main__"], entry_point.partition(":")[2])
    if callable(entry_point) and not isinstance(entry_point, SentEntryPoint):
        return SentEntryPoint(entry_point)
    return entry_point
