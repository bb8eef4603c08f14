"""Means of sending messages: each answers, and only tokens and words survive a killed user."""

from __future__ import annotations

import queue
import signal

import pytest

from perf import queues
from perf.queues import FORK, LOAD, MEANS, Queue, Settings, Tokens, Words, blocks, measure, rows


@pytest.mark.parametrize("count", [1, LOAD])
@pytest.mark.parametrize("name", MEANS)
def test_messages_are_answered(name, count):
    if name == "faster-fifo":
        pytest.importorskip("faster_fifo")
    with MEANS[name](count) as means:
        assert means.measure(0.1) > 0


class HeldForEver(Queue):
    """A queue whose user is killed exactly while it holds the lock."""

    def use(self):
        self.there.get()  # holds it as long as nothing comes

    def probe(self):
        super().use()


def test_a_queue_is_blocked_by_a_process_that_died_with_its_lock(monkeypatch):
    monkeypatch.setattr(queues, "PATIENCE", 0.5)
    assert blocks(HeldForEver(1), seconds=0.5)


class HeldTokens(Tokens):
    def use(self):
        with self.pool.lock:
            signal.pause()


def test_tokens_outlive_a_process_that_died_with_their_lock():
    assert not blocks(HeldTokens(LOAD), seconds=0.5)


def test_tokens_that_a_dead_process_had_claimed_are_claimed_again():
    tokens = Tokens(1)
    dead = FORK.Process(target=tokens.pool.claim, args=(queues.VICTIM,))
    dead.start()
    dead.join()
    with pytest.raises(queue.Empty):
        tokens.probe()
    tokens.recover()
    assert tokens.pool.granted(queues.PROBE) == 0  # it has waited for the only token


def test_what_is_not_installed_is_named_and_left_out(monkeypatch, capsys):
    def missing(count):
        raise ImportError("No module named 'faster_fifo'")

    monkeypatch.setattr(queues, "MEANS", {"faster-fifo": missing, "words and bells": Words})
    result = measure(Settings(seconds=0.05, rounds=1, kills=1))
    assert 'pip install "fastrl[queues]"' in capsys.readouterr().err
    ((name, trip, load, killed, blocked),) = rows(result)
    assert (name, killed, blocked) == ("words and bells", "has no lock", "")
    assert trip
    assert load
