from __future__ import annotations

import gc
import os
import resource

import numpy as np
import pytest
from helpers.memory import arena_of, child
from helpers.processes import open_files

from sampler.errors import ConfigError
from sampler.shm import arena as arena_module
from sampler.shm.arena import ALIGNMENT, Arena, Field, Layout

INT32 = Field("numbers", (3, 5), np.dtype(np.int32))
FLAGS = Field("flags", (7,), np.dtype(bool))


def test_arrays_have_their_shape_begin_on_cache_lines_and_do_not_overlap():
    arena = arena_of(INT32, FLAGS)
    assert arena["numbers"].shape == (3, 5)
    assert arena["numbers"].dtype == np.int32
    assert arena["flags"].shape == (7,)
    assert all(arena[name].ctypes.data % ALIGNMENT == 0 for name in arena.layout.fields)
    arena["numbers"][:] = -1
    assert not arena["flags"].any()
    arena["flags"][:] = True
    assert (arena["numbers"] == -1).all()
    arena.close()


def test_a_scalar_field_and_an_empty_one():
    arena = arena_of(Field("one", (), np.dtype(np.float64)), Field("none", (4, 0), np.dtype("u1")))
    arena["one"][...] = 2.5
    assert arena["one"] == 2.5
    assert arena["none"].shape == (4, 0)
    arena.close()


def test_two_arrays_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="'flags'"):
        Layout([FLAGS, FLAGS])


def fill(connection, arena):
    connection.recv()
    arena["numbers"][:] = os.getpid()
    connection.send(os.getpid())


def test_a_child_sees_the_same_memory():
    arena = arena_of(FLAGS, INT32)
    with child(fill, arena) as (_, connection):
        connection.send("go")
        pid = connection.recv()
    assert (arena["numbers"] == pid).all()
    arena.close()


def test_closing_twice_leaves_no_descriptor_and_arrays_stay_readable():
    before = open_files()
    arena = arena_of(INT32)
    array = arena["numbers"]
    array[:] = 7
    arena.close()
    arena.close()
    del arena
    gc.collect()
    assert (array == 7).all()
    del array
    gc.collect()
    assert open_files() == before


def test_more_than_is_free_is_refused_in_one_line_before_it_is_taken(monkeypatch):
    monkeypatch.setattr(arena_module, "available_memory", lambda: 3 * 2**20)
    before = open_files()
    with pytest.raises(ConfigError) as caught:
        Arena(Layout([Field("huge", (5 * 2**20,), np.dtype("u1"))]), "lower buffers=4")
    text = str(caught.value)
    assert text == "shared memory of 5 MiB refused (3 MiB are free); lower buffers=4"
    assert open_files() == before


def test_an_address_space_limit_is_refused_in_one_line():
    before = open_files()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    try:
        resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 2**20, limits[1]))
        with pytest.raises(ConfigError) as caught:
            Arena(Layout([Field("huge", (256 * 2**20,), np.dtype("u1"))]), "ask for less")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    text = str(caught.value)
    assert text == "shared memory of 256 MiB refused (Cannot allocate memory); ask for less"
    assert open_files() == before
