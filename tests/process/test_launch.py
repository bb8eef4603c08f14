"""Processes that the system refuses to start."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from helpers.children import prepare
from helpers.processes import PATIENCE, fork_server, open_files, wait_until, workers_of

from sampler import Sampler, SamplerConfig, WorkerError
from sampler.process import launch
from sampler.process.bell import Bell
from sampler.process.launch import context, end, start

CONFIG = SamplerConfig(env="fastrl/Counter-v0", inference="random", start_method="spawn")


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_process_that_cannot_be_started_is_one_line_and_leaves_nothing(monkeypatch, fails_at):
    """The first one only looks at the environment."""
    usual, started = multiprocessing.util.spawnv_passfds, []

    def refuse(*arguments):
        if len(started) == fails_at:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(usual(*arguments))
        return started[-1]

    with Sampler(CONFIG) as sampler:  # starts multiprocessing's own process
        sampler.get_batch()
    del sampler
    before = open_files()
    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", refuse)
    name = "fastrl (inspection|policy worker 0|rollout worker 0)"
    message = rf"^{name} could not be started \(Resource temporarily unavailable\); raise the limit"
    with pytest.raises(WorkerError, match=message):
        Sampler(CONFIG)
    assert len(started) == fails_at
    assert workers_of() == []
    assert open_files() == before


class Reluctant(multiprocessing.process.BaseProcess):
    """Cannot be started a number of times."""

    def __init__(self, refusals):
        super().__init__(name="fastrl worker")
        self.refusals = list(refusals)

    def start(self):
        if self.refusals:
            raise self.refusals.pop()


class Slow(Reluctant):
    def __init__(self):
        super().__init__([])

    def start(self):
        time.sleep(0.01)


def test_a_fork_server_that_is_just_dying_is_waited_for(monkeypatch):
    process = Reluctant([ConnectionRefusedError(), EOFError(), BrokenPipeError()])
    start(process)
    assert process.refusals == []
    monkeypatch.setattr(launch, "DYING_TIMEOUT", 0.0)
    with pytest.raises(WorkerError, match=r"worker could not be started \(the fork server ended\)"):
        start(Reluctant([EOFError()] * 100))


def test_processes_may_be_started_by_several_threads():
    """Every worker has its environment, and the script's own main module is put back."""
    main, variables = sys.modules["__main__"], dict(os.environ)
    threads = [threading.Thread(target=start, args=(Slow(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.modules["__main__"] is main
    assert dict(os.environ) == variables


def test_a_name_of_tmp_that_is_too_long_is_one_line(tmp_path):
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    script = (
        "from sampler import *\ntry: Sampler(SamplerConfig('CartPole-v1', inference='random'))\n"
    )
    script += "except ConfigError as error: print(error)"
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", script]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    line = f"the path of a socket in {re.escape(str(folder))} is too long; set TMPDIR to a folder"
    assert re.match(line, out.stdout), out
    assert out.stderr == ""


@pytest.fixture(params=["forkserver", "spawn"])
def half_started(request, monkeypatch):
    """A process whose start is not over yet, its connection, and the bell that tells of that."""
    rung = []
    monkeypatch.setattr(Bell, "ring", lambda bell: rung.append(os.dup(bell.fd)))
    ours, theirs = context(request.param).Pipe()
    process = context(request.param).Process(target=prepare, args=(theirs,), daemon=True)
    start(process)
    theirs.close()
    yield process, ours, rung[0]
    os.close(rung[0])
    ours.close()
    end(process, PATIENCE)


def test_a_process_begins_when_its_start_is_over(half_started):
    """Before that the kernel may still be about to report what was written to start it."""
    process, connection, bell = half_started
    assert not connection.poll(1.0)
    os.eventfd_write(bell, 1)
    assert connection.recv() == "prepared"
    connection.send("end")
    process.join()
    assert process.exitcode == 0


def test_a_process_whose_start_fails_halfway_ends(half_started):
    process, connection, _ = half_started
    process._popen.finalizer()  # closes this end of its pipe, as when it is dropped
    with pytest.raises(EOFError):
        connection.recv()


INTERRUPTED = """
    import os, signal, sys
    from helpers.children import tell_of_interruptions
    from sampler.process.launch import context, end, start

    ours, theirs = context(sys.argv[1]).Pipe()
    process = context(sys.argv[1]).Process(target=tell_of_interruptions, args=(theirs,))
    start(process)
    pid = process.pid
    (group, waits), prepared = ours.recv()
    end(process, 60.0)
    assert group != os.getpgrp() or waits
    assert prepared == (pid, False)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_ctrl_c_interrupts_no_process_that_is_being_started(method):
    """Which would end it with a traceback, at an import. Also the first one of a script."""
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), method]
    ran = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")


SCRIPT = """
    import os, signal, sys
    from sampler import Sampler, SamplerConfig
    with Sampler(SamplerConfig("fastrl/Counter-v0", inference="random")) as sampler:
        sampler.get_batch()
        stats = sampler.stats()
        pids = [worker["pid"] for worker in stats["rollout"] + stats["policy"]]
        print(*pids, flush=True)
        sys.stdin.read()
        sampler.get_batch()
        print(sampler.stats()["restarts"])
"""


def test_every_process_shows_what_it_is_doing(tmp_path):
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        pids = [int(pid) for pid in process.stdout.readline().split()]
        pids.append(fork_server(process.pid).pid)
        assert len(pids) == 2 + 1 + 1
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
        shown = (tmp_path / "errors").read_text
        wait_until(lambda: shown().count("(most recent call first)") >= len(pids), "all of them")
        out, _ = process.communicate()
    assert out == "0\n"
    assert process.returncode == 0


def test_a_closed_standard_error_is_no_hindrance():
    script = textwrap.dedent(SCRIPT)
    shell = 'exec "$0" -c "$1" </dev/null 2>&-'
    command = ["sh", "-c", shell, sys.executable, script]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE).stdout
    assert out.endswith("\n0\n")
