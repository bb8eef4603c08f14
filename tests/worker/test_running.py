"""What a worker process does around its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from helpers.children import work
from helpers.faults import fail, leave
from helpers.processes import PATIENCE, is_alive, wait_until
from helpers.store import make_shared

from sampler.errors import EnvError, WorkerError
from sampler.process.launch import context, end, start
from sampler.process.report import error_of
from sampler.shm.counters import Stage
from sampler.worker.running import NICENESS


def run(outcome):
    """The shared memory and the exit code after worker 1 has done its work."""
    shared = make_shared()
    process = context("spawn").Process(target=work, args=(shared, 1, outcome))
    start(process)
    process.join(PATIENCE)
    exitcode = process.exitcode
    end(process, PATIENCE)
    return shared, exitcode


def nothing():
    assert os.nice(0) >= NICENESS


def test_a_worker_that_is_done_says_so_and_ends_with_its_group():
    shared, exitcode = run(nothing)
    assert exitcode == -signal.SIGKILL
    assert shared.errors.take(1) == ""
    assert shared.counters.rollout[1]["stage"] == Stage.STOPPED


@pytest.mark.parametrize(
    ("outcome", "line", "where"),
    [
        (fail, "worker 1: ValueError: the engine is gone", "in fail"),
        (leave, "worker 1: SystemExit: 4", "in leave"),
    ],
)
def test_a_worker_that_fails_leaves_a_report(outcome, line, where):
    shared, exitcode = run(outcome)
    assert exitcode == -signal.SIGKILL
    error = error_of(shared.errors.take(1), EnvError)
    assert str(error) == line
    assert where in error.traceback_text
    assert shared.errors.take(0) == ""


def test_a_report_of_another_kind_keeps_its_kind():
    shared, _ = run(refuse)
    assert type(error_of(shared.errors.take(1), EnvError)) is WorkerError


def refuse():
    raise WorkerError("no")


def leave_a_child():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(os.environ["FASTRL_TEST_PID"]).write_text(str(child.pid))


def test_what_it_has_started_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTRL_TEST_PID", str(tmp_path / "pid"))
    run(leave_a_child)
    pid = int((tmp_path / "pid").read_text())
    wait_until(
        lambda: not psutil.pid_exists(pid) or not is_alive(psutil.Process(pid)), "the child's end"
    )
