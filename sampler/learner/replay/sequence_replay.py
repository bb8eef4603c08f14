"""Prioritised replay of whole rows: sequences with burn-in, recurrent state and versions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sampler.learner.replay.priorities import Normalize, Priorities
from sampler.learner.replay.row_storage import Fields, FieldSpecs, RowStorage

Array = TypeVar("Array", np.ndarray, Tensor)


class Replay:
    """Rows, and the priorities of the items sampled from them; saved and restored together."""

    storage: RowStorage
    priorities: Priorities

    @property
    def nbytes(self) -> int:
        """Bytes reserved for the rows."""
        return self.storage.nbytes

    def state_dict(self) -> Fields:
        """The complete state, as arrays; most are views, so write or copy them before the next
        `add`."""
        return {**self.storage.state_dict(), **self.priorities.state_dict()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from the `state_dict()` of a replay with the same fields and capacity. Raises
        ConfigError for other ones."""
        self.storage.load_state_dict(state)
        self.priorities.load_state_dict(state)


class SequenceReplay(Replay):
    """The last `capacity` rows of the sampler's store and the priorities to sample them by.

        replay = SequenceReplay(row_fields(batch.fields), capacity=50_000)
        replay.add(batch.fields, priorities)
        fields, rows, weights = replay.sample(64, generator, out=buffers)
        replay.update_priorities(rows, sequence_priority(td_errors, mask))

    A row is copied once on its way in and once on its way out. Not thread-safe.
    """

    def __init__(
        self,
        fields: FieldSpecs,
        capacity: int,
        alpha: float = 0.9,
        beta: float = 0.6,
        uniform: float = 0.0,
        normalize: Normalize = "batch",
        path: str | Path | None = None,
        remedy: str = "lower the capacity, or set a path to keep it on disk",
        max_bytes: int | None = None,
    ) -> None:
        """`fields`: name -> (shape, dtype) of one row's part. `capacity`: rows. `alpha=0`: uniform
        sampling. `uniform`: share of uniform sampling mixed in. `path`: a directory, to keep the
        rows in an unnamed file there. `max_bytes`: bound of the capacity. See `Priorities` and
        `RowStorage`.

        Raises ConfigError where the rows do not fit.
        """
        self.storage = RowStorage(fields, capacity, path, remedy, max_bytes)
        self.priorities = Priorities(self.storage.capacity, alpha, beta, uniform, normalize)

    def __len__(self) -> int:
        """Rows stored now."""
        return self.storage.size

    def add(self, fields: Mapping[str, np.ndarray], priorities: Any = None) -> np.ndarray:
        """Copies n rows in, over the oldest if it is full; returns their serial numbers.

        fields: arrays [n, *shape] for every field (others are ignored). priorities: [n], or None:
        the largest so far. A row whose `mask` is False throughout is never sampled.
        """
        rows = self.storage.add(fields)[-self.storage.capacity :]
        slots = self.storage.slots(rows)
        kept = None if priorities is None else np.asarray(priorities)[-len(rows) :]
        masks = self.storage.arrays.get("mask")
        self.priorities.add(slots, kept, True if masks is None else masks[slots].any(1))
        return rows

    def sample(
        self,
        n: int,
        generator: np.random.Generator,
        out: Fields | None = None,
        beta: float | None = None,
        stratified: bool = True,
    ) -> tuple[Fields, np.ndarray, np.ndarray]:
        """n rows in proportion to their priorities, with replacement.

        Returns their fields [n, *shape], copied to `out` (`buffers(n)`) if given; their serial
        numbers int64 [n]; and importance weights float32 [n]. Raises ValueError while
        nothing is stored.
        """
        slots, weights = self.priorities.sample(n, generator, beta, stratified)
        return self.storage.take(slots, out), self.storage.rows(slots), weights

    def buffers(self, n: int) -> Fields:
        """Arrays for n sampled rows, to be used again and again."""
        return self.storage.buffers(n)

    def update_priorities(self, rows: np.ndarray, priorities: Any) -> int:
        """Sets priorities [n] of rows by their serial numbers; the last of repeated ones counts.

        Rows that have been overwritten since they were sampled are skipped, so that their errors
        do not become another row's; returns the number of rows that were still there.
        """
        rows = np.asarray(rows)
        stored = self.storage.stored(rows)
        slots = self.storage.slots(rows[stored])
        self.priorities.update(slots, np.asarray(priorities)[stored])
        return int(stored.sum())


def row_fields(batch_fields: Mapping[str, np.ndarray]) -> dict[str, tuple[tuple[int, ...], Any]]:
    """The field specs of rows like those of a batch with arrays [B, *shape]."""
    return {name: (array.shape[1:], array.dtype) for name, array in batch_fields.items()}


def capacity_in_rows(steps: int, rollout: int, overlap: int = 0) -> int:
    """How many rows hold at least `steps` different steps, if each adds `rollout - overlap`."""
    return -(-steps // (rollout - overlap))


def sequence_priority(td_errors: Array, mask: Array | None = None, eta: float = 0.9) -> Array:
    """eta max|d| + (1 - eta) mean|d| over the valid steps (Kapturowski et al. 2019, section 2.3).

    td_errors: [..., T], numpy or torch; mask: bool [..., T]. Returns [...] of the same kind and
    dtype; 0 where no step is valid.
    """
    if isinstance(td_errors, np.ndarray):
        valid = None if mask is None else torch.from_numpy(mask)
        return _sequence_priority(torch.from_numpy(td_errors), valid, eta).numpy()
    return _sequence_priority(td_errors, mask, eta)


@torch.no_grad()
def _sequence_priority(td_errors: Tensor, mask: Tensor | None, eta: float) -> Tensor:
    errors = td_errors.abs()
    if mask is None:
        return eta * errors.amax(-1) + (1 - eta) * errors.mean(-1)
    errors = torch.where(mask.bool(), errors, errors.new_zeros(()))
    return eta * errors.amax(-1) + (1 - eta) * errors.sum(-1) / mask.sum(-1).clamp(min=1)
