from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from helpers.memory import arena_of, child

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
