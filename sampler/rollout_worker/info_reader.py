"""Reads the numbers that a run wants to see from the infos of its environments."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from numbers import Real
from typing import Any

import numpy as np

from sampler.config import InfoKey
from sampler.errors import EnvError
from sampler.rollout_worker.vector_infos import entry, final_entry
from sampler.shm.info_figures import InfoFigures, bin_of

EMPTY = (0.0, 0.0, inf, -inf)


class InfoReader:
    """Of one worker, for all its lanes. Numbers are counted here and passed on by `flush`."""

    def __init__(self, keys: Sequence[InfoKey], figures: InfoFigures, worker: int) -> None:
        self._of_steps = [(i, key) for i, key in enumerate(keys) if key.statistic == "mean"]
        self._of_ends = [(i, key) for i, key in enumerate(keys) if key.statistic != "mean"]
        self._figures, self._worker = figures, worker
        self._bins = figures.bins[worker]
        self._sums = [list(EMPTY) for _ in keys]
        self._counted = False

    def step(self, info: Any, ended: bool) -> None:
        """Count the info of one environment's step. Raises EnvError for what is not a number."""
        if not isinstance(info, dict):
            raise EnvError(f"step() returned info of type {type(info).__name__}; return a dict")
        for index, key in self._of_steps:
            self._count(index, key, info.get(key.path[0]))
        if ended:
            for index, key in self._of_ends:
                self._count(index, key, info.get(key.path[0]))

    def vector_step(self, info: dict[str, Any], resets: np.ndarray, ended: np.ndarray) -> None:
        """Count the info of a vector environment's step. resets, ended: bool [L]; lanes that were
        reset have made no step."""
        going_on = np.flatnonzero(~(resets | ended)).tolist()
        ends = np.flatnonzero(ended).tolist()
        for index, key in self._of_steps:
            for lane in going_on:
                self._count(index, key, entry(info, key.path[0], lane))
        for lane in ends:
            for index, key in self._of_steps + self._of_ends:
                self._count(index, key, final_entry(info, key.path[0], lane))

    def flush(self) -> None:
        """Let others see what has been counted."""
        if self._counted:
            self._figures.add(self._worker, np.array(self._sums))
            self._sums = [list(EMPTY) for _ in self._sums]
            self._counted = False

    def _count(self, index: int, key: InfoKey, value: Any) -> None:
        """Count `value`, the info's entry for the first part of the key; None: it has none."""
        for part in key.path[1:]:
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return
        if isinstance(value, np.ndarray) and value.size == 1:
            value = value.item()
        if not isinstance(value, Real | np.bool_):
            raise EnvError(
                f"info[{'.'.join(key.path)!r}] is {_describe(value)}, not a number; correct the "
                "environment, or leave it out of info_keys"
            )
        number = float(value)
        if not isfinite(number):
            return
        self._counted = True
        sums = self._sums[index]
        sums[0] += 1
        sums[1] += number
        sums[2] = min(sums[2], number)
        sums[3] = max(sums[3], number)
        if key.statistic == "histogram":
            self._bins[index, bin_of(number)] += 1


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return f"a {type(value).__name__}"
