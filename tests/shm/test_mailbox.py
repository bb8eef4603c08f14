from __future__ import annotations

import numpy as np
import pytest
from helpers.memory import arena_of, child
from helpers.processes import wait_until

from sampler.shm.mailbox import ERROR_BYTES, RING, Episode, EpisodeRings, ErrorSlots, GameTotals


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


def test_of_more_games_than_a_ring_holds_a_sample_is_kept_and_the_rest_counted(arena):
    rings = EpisodeRings(arena)
    for number in range(3 * RING):
        rings.put(0, number, 0.0, 1, 1)
    lanes = [episode.lane for episode in rings.take()]
    assert len(lanes) == RING
    assert lanes == sorted(set(lanes))
    assert rings.missed == 2 * RING
    for number in range(RING):  # and after it the ring is empty again
        rings.put(0, number, 0.0, 1, 1)
    assert [episode.lane for episode in rings.take()] == list(range(RING))
    assert rings.missed == 2 * RING


def test_the_sample_prefers_neither_lanes_nor_early_nor_late_games(arena):
    rings, games = EpisodeRings(arena), 16 * RING
    taken: list[int] = []
    for _ in range(10):
        for number in range(games):
            rings.put(0, number, 0.0, 1, 1)
        taken += [episode.lane for episode in rings.take()]
    expected = len(taken) / 16
    by_time = np.bincount(np.array(taken) * 16 // games, minlength=16)
    by_lane = np.bincount(np.array(taken) % 16, minlength=16)
    for counts in (by_time, by_lane):
        assert np.abs(counts - expected).max() < 4 * expected**0.5


def test_sums_are_of_all_games(arena):
    rings = EpisodeRings(arena)
    assert rings.total() == GameTotals(0, 0.0, 0, 0)
    for number in range(3 * RING):
        rings.put(number % 3, 0, number + 0.5, 2, 8)
        if number == 100:
            rings.take()
    for _ in range(3 * RING):
        rings.put(1, 0, -1.0, 1, 4)
    count, score = 6 * RING, sum(range(3 * RING)) + 1.5 * RING - 3 * RING
    assert rings.total() == GameTotals(count, score, 9 * RING, 36 * RING)
    assert len(rings.take()) + rings.missed + 101 == count
    assert rings.taken() == rings.total() == GameTotals(count, score, 9 * RING, 36 * RING)
    rings.put(0, 0, 1.0, 1, 4)
    assert rings.taken().games == count


def test_a_saved_state_goes_on_with_the_same_games(arena):
    rings, other = EpisodeRings(arena), EpisodeRings(arena_of(*EpisodeRings.fields(3)))
    for number in range(3 * RING):
        rings.put(0, number, 0.5, 1, 1)
        rings.put(2, number, 0.5, 1, 1)
    rings.take()
    rings.put(1, 7, 1.0, 2, 3)
    other.load_state_dict({k: np.copy(v) for k, v in rings.state_dict().items()})
    assert other.total() == rings.total()
    assert other.taken() == rings.taken()
    assert other.missed == rings.missed
    for number in range(2 * RING):
        rings.put(0, number, 0.5, 1, 1)
        other.put(0, number, 0.5, 1, 1)
    assert other.take() == rings.take()


def test_a_state_saved_without_sums_keeps_its_games(arena):
    rings = EpisodeRings(arena)
    entries = np.zeros((3, RING, 4))
    entries[0, :5] = [[n, n, 1, 1] for n in range(RING, RING + 5)]
    entries[0, 5:] = [[n, n, 1, 1] for n in range(5, RING)]
    heads, read = np.array([RING + 5, 0, 0]), np.array([RING - 1, 0, 0])
    rings.load_state_dict({"entries": entries, "heads": heads, "read": read, "missed": 4})
    assert [episode.lane for episode in rings.take()] == list(range(RING - 1, RING + 5))
    assert rings.missed == 4
    assert rings.total().games == 0


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
    assert rings.total() == GameTotals(count, *[sum(range(count))] * 2, 2 * sum(range(count)))


def test_sums_read_beside_the_writer_belong_together(arena):
    rings = EpisodeRings(arena)
    with child(write_episodes, arena, 20_000) as (_, connection):
        seen = set()
        while not connection.poll():
            games, score, length, frames = rings.total()
            assert score == length == games * (games - 1) / 2
            assert frames == 2 * length
            seen.add(games)
    assert len(seen) > 10


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
