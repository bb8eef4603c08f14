"""Sizes of processes, and their growth."""

from __future__ import annotations

import mmap
import os

import pytest

from perf.memory import PARTS, look, proportional_set, slope

MIB = 2**20


def test_slope_is_growth_per_second():
    assert slope([100.0, 101.0, 102.0, 104.0], [5.0, 7.0, 9.0, 13.0]) == pytest.approx(2.0)
    assert slope([1.0, 2.0, 3.0], [4.0, 4.0, 4.0]) == pytest.approx(0.0)


def test_parts_make_up_the_whole():
    size = proportional_set(os.getpid())
    parts = size["private"] + size["code"] + size["shared"]
    assert parts == pytest.approx(size["pss"], abs=64 * 1024)  # the kernel rounds each to kB


def test_shared_memory_is_seen():
    before = proportional_set(os.getpid())["shared"]
    with mmap.mmap(-1, 8 * MIB) as memory:  # anonymous and shared
        memory[:] = b"x" * len(memory)
        after = proportional_set(os.getpid())["shared"]
    assert after - before == pytest.approx(8 * MIB, rel=0.01)


def test_kinds_are_sums_over_their_processes():
    result = look({"learner": [os.getpid()], "policy": []})
    assert set(result["learner"]) == set(PARTS)
    assert result["learner"]["pss"] > MIB
    assert result["policy"] == dict.fromkeys(PARTS, 0)
