"""From stored actions to those of the environment: keeping to bounds, without torch.

Stored actions are in the action space's own units. Only a Gaussian policy on a bounded Box can
leave the bounds; its unclipped actions are stored, because the log-probabilities refer to them,
and clipped on the way into the environment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sampler.spaces.flattening import children


def to_env(space: gym.Space) -> Callable[[Any], Any] | None:
    """A function from stored actions (with any leading dimensions) to those the environment takes.

    None where they are the same, so that the common case costs nothing.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        keyed = isinstance(space, spaces.Dict)
        functions = {key: to_env(child) for key, child in children(space).items()}
        if not any(functions.values()):
            return None

        def convert(actions: Any) -> Any:
            parts = {key: f(actions[key]) if f else actions[key] for key, f in functions.items()}
            return parts if keyed else tuple(parts.values())

        return convert
    if isinstance(space, spaces.Box) and (np.isfinite(space.low) | np.isfinite(space.high)).any():
        low, high = space.low, space.high
        return lambda actions: np.clip(actions, low, high)
    return None
