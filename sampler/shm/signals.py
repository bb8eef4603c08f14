"""Signals between processes: bells to wake a sleeper, and requests for actions.

A request is a row of words in shared memory. The rollout worker writes what it wants and then a
new sequence number; the policy worker answers by echoing that number. Nothing is ever cleared, so
an answer that was meant for a process that has died cannot be mistaken for a fresh one.
"""

from __future__ import annotations

import numpy as np

from sampler.shm.arena import Field

# Words of a request, which fills a cache line, so that no two groups write to the same line.
ASKED, ANSWERED, REFUSED, TOKEN, STEP, ROW = range(6)
REQUEST_WORDS = 8


def request_field(groups: int) -> Field:
    """One request per group of lanes: int64 [groups, REQUEST_WORDS]."""
    return Field("requests", (groups, REQUEST_WORDS), np.dtype(np.int64))
