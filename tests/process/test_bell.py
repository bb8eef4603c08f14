from __future__ import annotations

import errno
import os
import pickle

import pytest
from helpers.memory import child
from helpers.processes import open_files

from sampler.errors import ConfigError
from sampler.process.bell import Bell, SilentBell


def test_waiting_ends_with_a_ring_or_with_the_time():
    bell = Bell()
    assert not bell.wait(0)
    bell.ring()
    bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0.001)  # several rings are one
    bell.close()


def test_clearing_forgets_rings_and_needs_none():
    bell = Bell()
    bell.clear()
    bell.ring()
    bell.clear()
    assert not bell.wait(0)
    bell.close()


def echo(connection, bell, answer):
    assert bell.wait(60)
    answer.ring()
    connection.recv()


def test_bells_ring_in_other_processes():
    bell, answer = Bell(), Bell()
    with child(echo, bell, answer) as (process, connection):
        bell.ring()
        assert answer.wait(60)
        connection.send("end")
        process.join()
        assert process.exitcode == 0
    bell.close()
    answer.close()


@pytest.mark.parametrize("times", [1, 2])
def test_closing_leaves_no_descriptor(times):
    before = open_files()
    bell = Bell()
    for _ in range(times):
        bell.close()
    assert open_files() == before


def test_a_refused_eventfd_is_one_line_with_remedies(monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "eventfd", refuse)
    with pytest.raises(ConfigError, match=r"^eventfd refused \(Operation not permitted\); al"):
        Bell()


def test_a_silent_bell_needs_no_descriptor_anywhere():
    before = open_files()
    bell = pickle.loads(pickle.dumps(SilentBell()))
    bell.ring()
    bell.close()
    assert open_files() == before
