"""What every process of a sampler does first and last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import psutil
import pytest
from helpers.children import leave_something, tell_of_itself
from helpers.processes import PATIENCE, is_alive, wait_until

from sampler.process.launch import context, end, start


@contextmanager
def child(target, method):
    """A process that runs `target(connection)`, and the other end of its connection."""
    ours, theirs = context(method).Pipe()
    process = context(method).Process(target=target, args=(theirs,), daemon=True)
    start(process)
    theirs.close()
    try:
        yield process, ours
    finally:
        ours.close()
        end(process, PATIENCE)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_it_is_prepared_for_signals_and_for_processes_of_its_own(method):
    with child(tell_of_itself, method) as (process, connection):
        about = connection.recv()
        assert about == {
            "group": process.pid,
            "ignores ctrl-c": True,
            "blocks ctrl-c": False,
            "daemonic": False,
        }
        os.kill(process.pid, signal.SIGINT)
        connection.send("go on")
        assert connection.recv() == "still there"
        process.join(PATIENCE)
        assert process.exitcode == 0


def test_what_it_wrote_is_kept_and_what_it_started_ends_when_it_ends_itself(tmp_path):
    with child(leave_something, "forkserver") as (process, connection):
        connection.send(str(tmp_path / "output"))
        left = psutil.Process(connection.recv())
        connection.send("end")
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL
        assert (tmp_path / "output").read_text() == "not flushed"
        wait_until(lambda: not is_alive(left), "the end of what it started")


PARENT = """
    import sys
    from helpers.children import prepare
    from sampler.process.launch import context, start

    ours, theirs = context(sys.argv[1]).Pipe()
    process = context(sys.argv[1]).Process(target=prepare, args=(theirs,), daemon=True)
    start(process)
    assert ours.recv() == "prepared"
    print(process.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_it_ends_when_its_parent_is_killed(method, stopped):
    """Also where it is stopped itself, and could do nothing about it."""
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), method],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        process = psutil.Process(int(parent.stdout.readline()))
        assert is_alive(process)
        if stopped:
            process.suspend()
        parent.kill()
        wait_until(lambda: not is_alive(process), "the end of the child")
