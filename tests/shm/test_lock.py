from __future__ import annotations

import fcntl
import os
import signal
import threading

import numpy as np
import pytest
from helpers.memory import arena_of, child

from sampler.shm import lock as module
from sampler.shm.arena import Field
from sampler.shm.lock import ProcessLock

COUNTS = Field("counts", (1,), np.dtype(np.int64))


def hold(connection, arena):
    with ProcessLock(arena.fd):
        connection.send("held")
        connection.recv()


def count(connection, arena, times):
    lock, counts = ProcessLock(arena.fd), arena["counts"]
    connection.send("ready")
    connection.recv()
    for _ in range(times):
        with lock:
            counts[0] = counts[0] + 1
    connection.send("done")


def test_a_lock_is_free_again_when_its_holder_is_killed():
    arena = arena_of(COUNTS)
    with child(hold, arena) as (process, connection):
        assert connection.recv() == "held"
        with pytest.raises(TimeoutError, match="process"), ProcessLock(arena.fd, timeout=0.05):
            pass
        os.kill(process.pid, signal.SIGKILL)
        with ProcessLock(arena.fd):
            pass
    arena.close()


def test_a_lock_passes_from_a_killed_holder_to_one_that_waits():
    arena = arena_of(COUNTS)
    entered = threading.Event()

    def enter():
        with ProcessLock(arena.fd):
            entered.set()

    with child(hold, arena) as (process, connection):
        connection.recv()
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.05)
        os.kill(process.pid, signal.SIGKILL)
        thread.join()
        assert entered.is_set()
    arena.close()


def test_threads_exclude_each_other_and_time_out():
    arena = arena_of(COUNTS)
    lock = ProcessLock(arena.fd, timeout=0.05)
    with lock, pytest.raises(TimeoutError, match="thread"), lock:
        pass
    with lock:  # the failure left it as it was
        pass
    arena.close()


def test_an_interruption_leaves_it_free(monkeypatch):
    """Ctrl-C in a notebook, when the record was just locked."""
    arena = arena_of(COUNTS)
    lock, usual = ProcessLock(arena.fd), fcntl.lockf

    def interrupted(fd, kind, *rest):
        usual(fd, kind, *rest)
        if kind != fcntl.LOCK_UN:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.fcntl, "lockf", interrupted)
        with pytest.raises(KeyboardInterrupt), lock:
            pass
    with child(hold, arena) as (_, connection):
        assert connection.recv() == "held"
    with lock:
        pass
    arena.close()


def test_the_time_in_which_it_was_stopped_itself_does_not_count(monkeypatch):
    arena = arena_of(COUNTS)
    tries, usual, now = 0, fcntl.lockf, 0.0

    def busy(fd, kind, *rest):
        nonlocal tries
        tries += 1
        if tries < module.SPINS + 10:
            raise BlockingIOError
        usual(fd, kind, *rest)

    def later():
        nonlocal now
        now += 1000.0
        return now

    monkeypatch.setattr(module.fcntl, "lockf", busy)
    monkeypatch.setattr(module.time, "monotonic", later)
    with ProcessLock(arena.fd, timeout=30.0):
        assert now >= 9000.0
    arena.close()


def test_nothing_is_lost_between_processes_and_threads():
    arena = arena_of(COUNTS)
    lock, counts = ProcessLock(arena.fd), arena["counts"]

    def add():
        for _ in range(500):
            with lock:
                counts[0] = counts[0] + 1

    with child(count, arena, 500) as (_, first), child(count, arena, 500) as (_, second):
        assert (first.recv(), second.recv()) == ("ready", "ready")
        threads = [threading.Thread(target=add) for _ in range(2)]
        for connection in (first, second):
            connection.send("go")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (first.recv(), second.recv()) == ("done", "done")
    assert counts[0] == 2000
    arena.close()
