from __future__ import annotations

import numpy as np
import pytest
from helpers.memory import arena_of, child

from sampler.shm.weights import BEGUN, CHECKSUM, WeightStore, checksum

WORDS = 40_000


@pytest.fixture
def arena():
    arena = arena_of(*WeightStore.fields(8 * WORDS))
    WeightStore(arena).reset()
    yield arena
    arena.close()


def content(version: int, words: int = WORDS) -> np.ndarray:
    """What version `version` consists of: every word differs from that of every other version."""
    return np.arange(words, dtype=np.int64) * 2654435761 + version * 40503


def publish(store: WeightStore, version: int) -> None:
    store.begin()[:] = content(version)
    assert store.publish() == version


def test_versions_count_from_zero_and_the_newest_is_read(arena):
    store, out = WeightStore(arena), np.zeros(WORDS, np.int64)
    assert store.version == -1
    for version in range(5):
        publish(store, version)
        assert store.version == version
        assert store.read(out) == version
        np.testing.assert_array_equal(out, content(version))


def test_a_version_being_written_does_not_disturb_the_current_one(arena):
    store, out = WeightStore(arena), np.zeros(WORDS, np.int64)
    publish(store, 0)
    store.begin()[: WORDS // 2] = 1
    assert store.read(out) == 0
    np.testing.assert_array_equal(out, content(0))


@pytest.mark.parametrize("damage", ["word", "begun", "checksum"])
def test_a_copy_that_is_not_whole_is_never_returned(arena, damage):
    store, out = WeightStore(arena), np.zeros(WORDS, np.int64)
    publish(store, 0)
    if damage == "word":
        store.copies[0, 123] += 1
    elif damage == "begun":
        store.marks[0, BEGUN] = 2
    else:
        store.marks[0, CHECKSUM] += 1
    with pytest.raises(RuntimeError, match="version 0"):
        store.read(out)


def test_sizes_are_rounded_up_to_words_and_never_empty():
    for nbytes, words in ((0, 1), (1, 1), (8, 1), (9, 2)):
        shapes = {field.name: field.shape for field in WeightStore.fields(nbytes)}
        assert shapes["weights"] == (2, words)


def test_the_checksum_notices_any_word():
    block = content(3)
    expected = checksum(block)
    for word in (0, 17, WORDS - 1):
        changed = block.copy()
        changed[word] ^= 1
        assert checksum(changed) != expected


def publish_for_ever(connection, arena):
    store = WeightStore(arena)
    version = 0
    while not connection.poll():
        publish(store, version)
        version += 1
    connection.send(version)


def read_for_ever(connection, arena, reads):
    store, out = WeightStore(arena), np.zeros(WORDS, np.int64)
    seen = []
    while store.version < 0:
        pass
    while len(seen) < reads:
        version = store.read(out)
        if not np.array_equal(out, content(version)):
            connection.send(f"version {version} is torn")
            return
        seen.append(version)
    connection.send(seen)


@pytest.mark.parametrize("reads", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_readers_never_see_a_torn_block(arena, reads):
    """A writer publishes without a pause; two readers compare every version that they read."""
    with (
        child(read_for_ever, arena, reads) as (_, first),
        child(read_for_ever, arena, reads) as (_, second),
        child(publish_for_ever, arena) as (_, writer),
    ):
        for seen in (first.recv(), second.recv()):
            assert isinstance(seen, list), seen
            assert seen == sorted(seen)
            assert len(set(seen)) > 1
        writer.send("stop")
        assert writer.recv() > max(seen)
