from __future__ import annotations

import numpy as np

from sampler import seeds


def test_streams_are_reproducible_and_independent():
    first = np.random.default_rng(seeds.sequence(3, seeds.LANE, 5)).random(8)
    again = np.random.default_rng(seeds.sequence(3, seeds.LANE, 5)).random(8)
    np.testing.assert_array_equal(first, again)
    others = [(3, seeds.LANE, 6), (3, seeds.POLICY, 5), (4, seeds.LANE, 5), (3, seeds.LANE, 5, 0)]
    for other in others:
        assert not np.isin(np.random.default_rng(seeds.sequence(*other)).random(8), first).any()


def test_integers_fit_31_bits_and_rarely_meet():
    found = [
        seeds.integer(s, seeds.LANE, lane, r)
        for s in range(10)
        for lane in range(100)
        for r in (0, 1)
    ]
    assert all(0 <= value < 2**31 for value in found)
    assert len(set(found)) == len(found)


def test_any_whole_number_is_a_seed():
    assert seeds.integer(2**200, seeds.MODEL) != seeds.integer(0, seeds.MODEL)
