"""Cutting whole recorded episodes into rows of fixed length, for a replay that is not filled by the
sampler (demonstrations, logged data). The sampler writes its rows itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from sampler.learner.replay.row_storage import Fields


def episode_rows(
    episode: Mapping[str, np.ndarray],
    length: int,
    period: int,
    end: Literal["pad", "write"] = "pad",
) -> tuple[Fields, np.ndarray]:
    """Rows of `length` entries that begin every `period` entries, until the episode is covered.

    episode: arrays [N, ...], one entry per observation, the final one included (its action and
    reward are zeros, as in the sampler's reset step). end: what becomes of a last row that would
    run over the end: "pad" fills it with zeros, "write" begins it earlier, so that it overlaps the
    one before by more; an episode shorter than a row is padded in any case.

    Returns rows [n, length, ...] of each field, and which entries are not padding, bool
    [n, length].
    """
    entries = len(next(iter(episode.values())))
    count = 1 + max(-(-(entries - length) // period), 0)
    starts = np.arange(count) * period
    if end == "write":
        starts[-1] = min(starts[-1], max(entries - length, 0))
    index = starts[:, None] + np.arange(length)
    mask = index < entries
    rows = {name: array[np.where(mask, index, 0)] for name, array in episode.items()}
    for array in rows.values():
        array[~mask] = 0
    return rows, mask
