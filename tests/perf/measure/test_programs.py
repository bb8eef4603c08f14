"""Programs that are run in turn."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from perf.measure import reporting
from perf.measure.programs import Program, ProgramError, report_rate

REPORTING = f"""
import sys, time
sys.path.insert(0, {reporting.__path__[0]!r})
from reporter import Reporter
report = Reporter()
"""


def program(body: str) -> Program:
    return Program([sys.executable, "-c", REPORTING + body], warm_up=0.0, start_timeout=60.0)


COUNTING = """
steps = 0
while True:
    steps += 10
    time.sleep(0.001)
    report(steps)
"""


def test_rate_is_taken_between_reports():
    assert report_rate([(10.0, 100), (11.0, 150), (14.0, 300)]) == 50.0


def process_of(running: Program) -> psutil.Process:
    children = psutil.Process().children()
    (process,) = (child for child in children if child.cmdline() == running.command)
    return process


def wait_until_stopped(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def test_a_program_is_stopped_between_its_turns():
    with program(COUNTING) as running:
        process = process_of(running)
        for _ in range(2):
            wait_until_stopped(process.pid)
            assert process.status() == psutil.STATUS_STOPPED
            assert running.measure(0.1) > 0
    assert not process.is_running()


def test_semaphores_of_a_program_are_removed(tmp_path):
    making = f"""
import multiprocessing
lock = multiprocessing.get_context("spawn").Lock()
open({str(tmp_path / "name")!r}, "w").write(lock._semlock.name)
"""
    with program(making + COUNTING):
        semaphore = Path("/dev/shm/sem." + (tmp_path / "name").read_text()[1:])
        assert semaphore.exists()
    assert not semaphore.exists()


def test_children_end_with_their_program():
    forking = """
import os
if os.fork() == 0:
    while True:
        time.sleep(1)
"""
    with program(forking + COUNTING) as running:
        (child,) = process_of(running).children()
    gone, _ = psutil.wait_procs([child], timeout=30)
    assert gone == [child]


def test_a_program_that_ends_is_named_with_its_last_words():
    with (
        pytest.raises(ProgramError, match=r"ended; its last words: .*no such game"),
        program("raise SystemExit('no such game')"),
    ):
        pass


def test_a_program_that_stands_still_is_not_slow_but_broken():
    body = """
report(1)
while True:
    time.sleep(0.06)
    report(1)
"""
    with program(body) as running, pytest.raises(ProgramError, match="made no steps"):
        running.measure(0.1)
