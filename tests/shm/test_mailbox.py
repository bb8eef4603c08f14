from __future__ import annotations

import numpy as np
import pytest
from helpers.memory import arena_of, child
from helpers.processes import wait_until

from sampler.shm.mailbox import ERROR_BYTES, RING, Episode, EpisodeRings, ErrorSlots


@pytest.fixture
def arena():
    arena = arena_of(*EpisodeRings.fields(3), *ErrorSlots.fields(2))
    yield arena
    arena.close()


def test_episodes_come_once_in_order_of_each_worker(arena):
    rings = EpisodeRings(arena)
    assert rings.take() == []
    rings.put(1, 5, 1.5, 10, 40)
    rings.put(0, 2, -3.0, 7, 28)
    rings.put(1, 6, 2.0, 1, 4)
    assert rings.take() == [
        Episode(2, -3.0, 7, 28),
        Episode(5, 1.5, 10, 40),
        Episode(6, 2.0, 1, 4),
    ]
    assert rings.take() == []
    assert rings.missed == 0


def test_rings_wrap_around(arena):
    rings = EpisodeRings(arena)
    taken = []
    for number in range(5 * RING):
        rings.put(2, number, number / 2, number, number)
        if number % 100 == 99:
            taken += rings.take()
    taken += rings.take()
    assert taken == [Episode(n, n / 2, n, n) for n in range(5 * RING)]
    assert rings.missed == 0


def test_episodes_that_a_full_ring_lost_are_counted(arena):
    rings = EpisodeRings(arena)
    for number in range(3 * RING):
        rings.put(0, number, 0.0, 1, 1)
    taken = rings.take()
    assert [episode.lane for episode in taken] == list(range(3 * RING - len(taken), 3 * RING))
    assert rings.missed == 3 * RING - len(taken)


def write_episodes(connection, arena, count):
    rings = EpisodeRings(arena)
    for number in range(count):
        rings.put(0, number, float(number), number, 2 * number)
    connection.send(count)


def test_a_reader_beside_the_writer_sees_whole_entries_in_order(arena):
    rings = EpisodeRings(arena)
    count = 20_000
    with child(write_episodes, arena, count) as (_, connection):
        taken = []
        while not connection.poll():
            taken += rings.take()
        taken += rings.take()
    lanes = [episode.lane for episode in taken]
    assert all(e == (e.lane, e.lane, e.lane, 2 * e.lane) for e in taken)
    assert lanes == sorted(set(lanes))
    assert len(taken) + rings.missed == count
    assert lanes[-1] == count - 1


def test_errors_are_taken_once(arena):
    slots = ErrorSlots(arena)
    slots.put(1, "höllisch")
    assert slots.take(0) == ""
    assert slots.take(1) == "höllisch"
    assert slots.take(1) == ""


def test_a_longer_error_replaces_a_shorter_one_and_fits(arena):
    slots = ErrorSlots(arena)
    slots.put(0, "a" * 100)
    slots.put(0, "b")
    assert slots.take(0) == "b"
    slots.put(0, "c" * 3 * ERROR_BYTES)
    assert slots.take(0) == "c" * ERROR_BYTES


def put_error(connection, arena):
    ErrorSlots(arena).put(1, "from the child")
    connection.recv()


def test_errors_cross_processes(arena):
    slots = ErrorSlots(arena)
    with child(put_error, arena) as (_, connection):
        assert wait_until(lambda: slots.take(1), "the error") == "from the child"
        connection.send("end")
    assert np.all(slots.size == 0)
