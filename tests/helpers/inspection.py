"""What tests look at inside a sampler, where its public interface shows nothing of the kind.

No other file of the tests knows the sampler's private attributes.
"""

from __future__ import annotations

import numpy as np

from sampler import FastrlError, Sampler, SequenceBatch
from sampler.shm.tokens import ABANDONED, FILLING, FINISHED


def advance(sampler: Sampler, timeout: float = 0.0) -> None:
    """Make a serial sampler's next step; let one with processes work for up to `timeout` seconds.

    Raises the error of a worker that has failed.
    """
    sampler._workers.check()
    sampler._workers.wait(timeout)


def failure(sampler: Sampler) -> FastrlError | None:
    """The error that the next `get_batch` raises, of a sampler with processes."""
    return sampler._workers.supervisor.failure  # type: ignore[union-attr]


def waits_for_rows(sampler: Sampler) -> np.ndarray:
    """Which groups wait for rows to write, bool [groups]."""
    return sampler._shared.tokens.ticket > 0


def has_given_up(sampler: Sampler, group: int) -> bool:
    """Whether rows that this group is filling have been given up."""
    tokens = sampler._shared.tokens
    return bool((tokens.status.flat[tokens.held_by(group)] == ABANDONED).any())


def finished_rows(sampler: Sampler) -> list[SequenceBatch]:
    """The rows that are finished and not delivered yet, of a sampler that stands still: a batch of
    each buffer that the caller does not hold."""
    tokens, store = sampler._shared.tokens, sampler._shared.store
    free = np.flatnonzero(tokens.held == 0).tolist()
    assert (tokens.status[free] != FILLING).all()
    empty = sampler.empty_batch()
    found = []
    for buffer in free:
        finished = np.repeat(tokens.status[buffer] == FINISHED, empty.spec.rows_per_token)
        fields = {name: array[finished] for name, array in store.buffer(buffer).items()}
        spaces = sampler.observation_space, sampler.action_space
        found.append(SequenceBatch(fields, empty.spec, *spaces))
    return found


def sends_weights_through_device_memory(sampler: Sampler) -> bool:
    """Whether weights are published in the memory of a GPU."""
    weights = sampler._assembly.device_weights
    return weights is not None and weights.is_cuda
