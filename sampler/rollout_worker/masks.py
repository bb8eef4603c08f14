"""Action masks: from what environments return into rows."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from sampler.errors import EnvError
from sampler.spaces.masks import flatten_mask

MASK_MISSING = (
    "no action_mask in this step's info, though the first reset had one; "
    "give it at every reset and step"
)


OF_PARTS = (gym.spaces.Dict, gym.spaces.Tuple, gym.spaces.MultiDiscrete)
"""Action spaces whose masks may be tuples, by part."""


def find_mask(observation: Any, info: dict[str, Any]) -> Any:
    """The action mask that came with a step, from the info or else from the observation."""
    mask = info.get("action_mask")
    if mask is None and isinstance(observation, dict):
        mask = observation.get("action_mask")
    return mask


def write_mask(target: np.ndarray, space: gym.Space, mask: Any, final: bool = False) -> None:
    """Copy an action mask into `target` [A]. The mask of an episode's last observation (`final`),
    after which there is no action, may be missing or permit nothing; then everything is
    permitted."""
    if mask is None and not final:
        raise EnvError(MASK_MISSING)
    target[...] = flatten_mask(space, mask, final)
