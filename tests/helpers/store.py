"""Shared memory of a sampler without its processes."""

from __future__ import annotations

import numpy as np

from sampler.shm.shared import Shared, Topology
from sampler.shm.signals import ASKED, ROW, STEP, TOKEN
from sampler.shm.store import ArraySpec, StoreSpec

NUMBERS = ArraySpec("obs", (2,), np.dtype(np.float32))
FRAME = ArraySpec("obs", (3, 3), np.dtype(np.uint8))
ACTIONS = (ArraySpec("actions", (), np.dtype(np.int64)),)


def make_shared(topology=None, sync=False, **changes) -> Shared:
    """By default 2 workers x 2 groups x 2 lanes, two policy workers, rows of 4 steps."""
    topology = topology or Topology(2, 2, 2, 2)
    values = {
        "buffers": 3,
        "rows": 4,
        "steps": 4,
        "overlap": 0,
        "rows_per_token": topology.lanes_per_group,
        "observations": (NUMBERS,),
        "actions": ACTIONS,
        "outputs": {"log_probs": ()},
    }
    return Shared(StoreSpec(**{**values, **changes}), topology, 0, sync)


def ask(shared: Shared, group: int, token: int, step: int, row: int = 0) -> None:
    """Make the request of a group for its actions at a step of the rows of its token."""
    words = shared.requests[group]
    words[TOKEN], words[STEP], words[ROW] = token, step, row
    words[ASKED] += 1
