"""Reading the infos of vector environments, which combine those of their lanes.

Gymnasium pairs every key with a mask: `info["_key"]`, bool [L], says for which lanes
`info["key"]` holds something. A key without a mask is for all lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FINAL_OBSERVATIONS = ("final_obs", "final_observation")
"""Keys of the final observations of episodes; the second is Gymnasium's name before 1.0."""


def of_lane(batched: Any, lane: int) -> Any:
    """One lane's part of combined values: nested arrays [L, ...]."""
    if isinstance(batched, dict):
        return {key: of_lane(part, lane) for key, part in batched.items()}
    if isinstance(batched, tuple):
        return tuple(of_lane(part, lane) for part in batched)
    return batched[lane]


def entry(info: dict[str, Any], key: str, lane: int, default: Any = None) -> Any:
    """The value of `key` in `info` for one lane; `default` if there is none for that lane."""
    if key not in info:
        return default
    given = info.get(f"_{key}")
    if given is not None and not given[lane]:
        return default
    value = of_lane(info[key], lane)
    return default if value is None else value


def final_entry(info: dict[str, Any], key: str, lane: int, default: Any = None) -> Any:
    """Like `entry`, for the step that ended an episode.

    With same-step autoreset that step's own info is in `info["final_info"]`: a dict with masks, or,
    before Gymnasium 1.0, one dict for each lane.
    """
    final = info.get("final_info")
    if final is None:
        return entry(info, key, lane, default)
    if isinstance(final, dict):
        return entry(final, key, lane, default)
    own = entry(info, "final_info", lane)
    return own.get(key, default) if isinstance(own, dict) else default


def final_observation(info: dict[str, Any], lane: int) -> Any:
    """The observation that ended a lane's episode before it was reset; None if there is none."""
    for key in FINAL_OBSERVATIONS:
        if (observation := entry(info, key, lane)) is not None:
            return observation
    return None


def has_final_observations(info: dict[str, Any], ended: np.ndarray) -> bool:
    """Whether the lanes that `ended`, bool [L], have been reset in the same step."""
    return any(final_observation(info, lane) is not None for lane in np.flatnonzero(ended).tolist())
