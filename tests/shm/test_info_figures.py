"""Figures of infos: sums in two copies, and bins of histograms."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampler.shm.arena import Arena, Layout
from sampler.shm.info_figures import BINS, EDGES, InfoFigures, bin_of, quantiles


@pytest.fixture
def figures():
    arena = Arena(Layout(InfoFigures.fields(2, 3)))
    yield InfoFigures(arena)
    arena.close()


def test_nothing_is_allocated_without_keys():
    assert InfoFigures.fields(2, 0) == []


def test_workers_add_up(figures):
    none = [0.0, 0.0, inf, -inf]
    figures.add(0, np.array([[2, 5.0, 1.0, 4.0], none, none]))
    figures.add(0, np.array([[1, -3.0, -3.0, -3.0], [1, 7.0, 7.0, 7.0], none]))
    figures.add(1, np.array([[1, 10.0, 10.0, 10.0], none, none]))
    first, second, third = figures.read()
    assert (first.count, first.sum, first.low, first.high) == (4, 12.0, -3.0, 10.0)
    assert (second.count, second.sum, second.low, second.high) == (1, 7.0, 7.0, 7.0)
    assert (third.count, third.sum, third.low, third.high) == (0, 0.0, inf, -inf)


@given(st.floats(-(2.0**30), 2.0**30))
def test_a_number_lies_between_the_edges_of_its_bin(value):
    place = bin_of(value)
    slack = 1e-12 * abs(value)  # of the logarithm's last digit
    assert EDGES[place] - slack <= value <= EDGES[place + 1] + slack


def test_numbers_beyond_the_edges_are_in_the_last_bins():
    assert (bin_of(1e300), bin_of(-1e300), bin_of(1e-300)) == (BINS - 1, 0, BINS // 2)


def test_quantiles_are_as_exact_as_the_bins():
    values = np.random.default_rng(0).normal(30, 10, 5000)
    histogram = np.zeros(BINS, np.int64)
    for value in values:
        histogram[bin_of(value)] += 1
    shares = [0.0, 0.1, 0.5, 0.9, 1.0]
    found = quantiles(histogram, values.min(), values.max(), shares)
    np.testing.assert_allclose(found, np.quantile(values, shares), rtol=0.1)
