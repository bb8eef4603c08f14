"""What was written first is seen first, and processors that cannot promise that are refused."""

from __future__ import annotations

import platform

import numpy as np
import pytest
from helpers.memory import arena_of, child
from helpers.store import make_shared

import sampler.policy_worker.requests as answering
import sampler.rollout_worker.request as asking
from sampler import ConfigError, Sampler, SamplerConfig
from sampler.policy_worker.requests import RequestBook
from sampler.rollout_worker.request import Request
from sampler.shm import mailbox, ordering, tokens, weights
from sampler.shm.arena import Field
from sampler.shm.mailbox import EpisodeRings
from sampler.shm.ordering import acquire, release
from sampler.shm.signals import ANSWERED, ASKED, STEP, TOKEN
from sampler.shm.tokens import NONE
from sampler.shm.weights import WeightStore

COUNT = 200_000


def send(connection, arena):
    words, number = memoryview(arena["words"]), memoryview(arena["number"])
    for n in range(1, COUNT + 1):
        words[(n % 2) * 8] = words[(n % 2) * 8 + 7] = n
        release()
        number[0] = n
    connection.recv()


def test_a_message_is_there_before_its_number():
    int64 = np.dtype(np.int64)
    arena = arena_of(Field("words", (16,), int64), Field("number", (1,), int64))
    words, number = memoryview(arena["words"]), memoryview(arena["number"])
    with child(send, arena) as (_, connection):
        n, seen = 0, 0
        while n < COUNT:
            n = number[0]
            acquire()
            first, last = words[(n % 2) * 8], words[(n % 2) * 8 + 7]
            seen += 1
            assert min(first, last) >= n
        connection.send("end")
    assert seen > 0
    arena.close()


@pytest.mark.parametrize("processor", ["aarch64", "riscv64", "ppc64le"])
def test_other_processors_need_the_extension(monkeypatch, processor):
    monkeypatch.setattr(platform, "machine", lambda: processor)
    monkeypatch.setattr(ordering, "FENCES", False)
    config = SamplerConfig(env="CartPole-v1", workers=1, inference="random", serial=True)
    with pytest.raises(ConfigError, match=rf"this processor \({processor}\) .* install a C compil"):
        Sampler(config)
    monkeypatch.setattr(ordering, "FENCES", True)
    ordering.check_processor()


def test_x86_needs_nothing(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(ordering, "FENCES", False)
    ordering.check_processor()


@pytest.fixture
def at_release(monkeypatch):
    """Patches a module's `release` so that it notes what a function returns at that moment."""

    def patch(module, look):
        seen = []
        monkeypatch.setattr(module, "release", lambda: seen.append(look()))
        return seen

    return patch


def test_a_request_is_whole_before_its_number(at_release):
    shared = make_shared()
    request = Request(shared, 1)
    words = shared.requests[1]
    seen = at_release(asking, lambda: words[[TOKEN, STEP, ASKED]].tolist())
    request.begin(token=3, step=0, row=2)
    request.ask(2)
    assert seen == [[3, 2, 0]]
    assert words[ASKED] == 1


def test_outputs_are_in_the_rows_before_the_answer(at_release):
    shared = make_shared()
    Request(shared, 0).ask(0)
    book = RequestBook(shared, 0)
    seen = at_release(answering, lambda: shared.requests[0, ANSWERED])
    book.answer(book.collect())
    assert seen == [0]
    assert shared.requests[0, ANSWERED] == 1


def test_what_was_asked_is_read_after_the_number(monkeypatch):
    """A request that becomes visible late is read as it is when its number is acknowledged."""
    shared = make_shared()
    words = shared.requests[0]
    words[ASKED] = 1

    def late():
        words[TOKEN], words[STEP] = 4, 3

    monkeypatch.setattr(answering, "acquire", late)
    requests = RequestBook(shared, 0).collect()
    assert requests.steps.tolist() == [3]
    assert requests.stored.tolist() == [8, 9]


def test_weights_are_whole_before_their_version(at_release):
    arena = arena_of(*WeightStore.fields(64))
    store = WeightStore(arena)
    store.reset()
    seen = at_release(weights, lambda: (store.version, store.copies[0, 0]))
    store.begin()[:] = 5
    store.publish()
    assert seen == [(-1, 0), (-1, 5), (-1, 5)]
    assert store.version == 0
    arena.close()


def test_a_game_is_whole_before_it_counts(at_release):
    arena = arena_of(*EpisodeRings.fields(1))
    rings = EpisodeRings(arena)
    seen = at_release(
        mailbox, lambda: (rings.heads[0], rings.numbers[0, 0], rings.entries[0, 0, 1])
    )
    rings.put(0, 7, 2.5, 3, 3)
    assert seen == [(0, 0, 0.0), (0, 0, 2.5), (0, 1, 2.5)]
    arena.close()


def test_rows_are_left_before_they_are_granted(at_release):
    shared = make_shared()
    pool = shared.tokens
    for group in [0, 1, 2, 3, 0, 1]:
        assert pool.claim(group) != NONE
    assert pool.claim(2) == NONE
    for token in (0, 1):
        pool.finish(token)
    buffer, _ = pool.take()
    seen = at_release(tokens, lambda: pool.grant[2])
    assert pool.release(buffer) == [2]
    assert seen == [NONE]
    assert pool.granted(2) != NONE
