"""Hypothesis strategies for spaces of every kind, nested at random."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from gymnasium import spaces

SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


@st.composite
def boxes(draw, bounded=False):
    """Integer and float boxes; float ones with bounds on either side, on one, or on none."""
    shape, dtype = draw(SHAPES), np.dtype(draw(st.sampled_from(INTEGERS + FLOATS)))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low = draw(st.sampled_from([info.min, 0, 1]))
        high = draw(st.sampled_from([info.max, 5]))
        return spaces.Box(low, high, shape, dtype.type)
    low = draw(st.sampled_from([-1.0, 0.5] if bounded else [-np.inf, -1.0, 0.5]))
    high = draw(st.sampled_from([1.0, 100.0] if bounded else [np.inf, 1.0]))
    return spaces.Box(low, high, shape, dtype.type)


DISCRETE = st.builds(
    lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-4, 4)
)
MULTI_DISCRETE = st.builds(
    lambda shape, n, dtype: spaces.MultiDiscrete(np.full(shape or (1,), n), dtype=dtype),
    SHAPES,
    st.integers(1, 7),
    st.sampled_from([np.int64, np.int32, np.uint8]),
)
MULTI_BINARY = st.builds(
    spaces.MultiBinary,
    st.one_of(st.integers(1, 4), st.lists(st.integers(1, 3), min_size=1, max_size=2)),
)
KEYS = st.text("ab._ 0é", min_size=1, max_size=3)


def nested(plain):
    """Dicts and tuples of `plain` spaces, up to two levels deep."""

    def around(inner):
        dicts = st.dictionaries(KEYS, inner, min_size=1, max_size=3).map(spaces.Dict)
        tuples = st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
        return st.one_of(dicts, tuples)

    return st.one_of(plain, around(plain), around(st.one_of(plain, around(plain))))


PLAIN = st.one_of(boxes(), DISCRETE, MULTI_DISCRETE, MULTI_BINARY)
SPACES = nested(PLAIN)


def draw(space, rng):
    """An element of a space, from all over it (`Box.sample` fails at the limits of integers)."""
    if isinstance(space, spaces.Dict):
        return {key: draw(child, rng) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(draw(child, rng) for child in space.spaces)
    if isinstance(space, spaces.Discrete):
        return space.dtype.type(space.start + rng.integers(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return (space.start + rng.integers(space.nvec)).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(2, size=space.shape, dtype=np.int8)
    if space.dtype.kind in "iu":
        return np.asarray(rng.integers(space.low, space.high, endpoint=True, dtype=space.dtype))
    values = np.clip(rng.normal(size=space.shape) * 100, space.low, space.high)
    return np.where(
        rng.random(space.shape) < 0.1, np.clip(-0.0, space.low, space.high), values
    ).astype(space.dtype)
