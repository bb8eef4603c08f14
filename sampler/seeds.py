"""Independent random streams for every purpose, all from one seed.

Streams come from `numpy.random.SeedSequence` with distinct spawn keys, so no two of them overlap,
whatever the seed; consecutive integer seeds would.
"""

from __future__ import annotations

import numpy as np

LANE, POLICY, MODEL, EVALUATION, LEARNER, SELECTION, GLOBAL = range(7)


def sequence(seed: int, *key: int) -> np.random.SeedSequence:
    """The seed sequence of one stream; `key` starts with what it is for."""
    return np.random.SeedSequence(seed, spawn_key=key)


def integer(seed: int, *key: int) -> int:
    """The same as a non-negative integer below 2**31, for APIs that take no sequence."""
    return int(sequence(seed, *key).generate_state(1)[0] >> 1)
