"""Growth, and what the processes are called."""

from __future__ import annotations

import gc
import mmap
import os

import numpy as np
import pytest

from perf.soak import Trend, look, workers


def test_a_trend_is_the_slope_per_million_steps():
    trend = Trend.of([0, 1e6, 3e6], [5.0, 7.0, 11.0])
    assert (trend.first, trend.last) == (5.0, 11.0)
    assert trend.per_million_steps == pytest.approx(2.0)
    assert trend.standard_error == pytest.approx(0.0, abs=1e-6)


def test_the_standard_error_is_that_of_the_slopes():
    noise = np.random.default_rng(0).normal(size=(2000, 20))
    trends = [Trend.of(np.arange(20) * 1e6, line) for line in noise]
    spread = np.std([trend.per_million_steps for trend in trends])
    assert np.mean([trend.standard_error for trend in trends]) == pytest.approx(spread, rel=0.1)


def test_descriptors_and_memory_are_seen():
    size = 2**26
    # Mapped by itself: what is allocated as usual may be memory that was freed before.
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    gc.collect()  # of other tests, not in between
    before = look(os.getpid())
    with open(os.devnull):
        np.frombuffer(block, np.uint8)[:] = 1
        after = look(os.getpid())
    assert after[2] == before[2] + 1
    assert after[1] - before[1] == pytest.approx(size, rel=0.1)
    assert after[0] - before[0] == pytest.approx(size, rel=0.1)


def test_workers_have_names():
    stats = {"rollout": [{"pid": 3}, {"pid": 4}], "policy": [{"pid": 5}]}
    named = workers(stats)
    assert named.pop("learner") == os.getpid()
    assert named == {"rollout worker 0": 3, "rollout worker 1": 4, "policy worker 0": 5}
