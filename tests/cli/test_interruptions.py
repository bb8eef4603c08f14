"""A run that is interrupted or killed again and again always goes on from what it has saved."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from helpers.processes import PATIENCE, wait_until, workers_of

from cli import train
from cli.run_folder import read_config
from sampler.learner.checkpoint import CheckpointStore, load

ROOT = Path(__file__).parents[2]
INSTANTS = 50
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
WITH_PROCESSES = 5  # every so many runs; the others are serial, which start faster

# Loads everything once, and forks a process for each command; signals that come before the
# command handles them end it without words.
COMMANDS = """
    import json, os, signal, sys
    import cli.options, cli.training, cli.display, torch._dynamo
    from cli import exits, train

    exits.GRACE_SECONDS = 60.0  # the machine may be busy

    for line in sys.stdin:
        request = json.loads(line)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            output = os.open(request["output"], os.O_WRONLY)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.argv[1:] = request["arguments"]
            train.main()
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Commands:
    """Starts fastrl-train, and interrupts it."""

    def __init__(self, folder, temporary):
        self.output = folder / "output.txt"
        script = "\n".join(line[4:] for line in COMMANDS.splitlines())
        self.process = subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def interrupt(self, arguments, number, start, delay):
        """Send a signal some time after the command has said `start`; what it said, exit code."""
        self.output.write_text("")
        request = {"output": str(self.output), "arguments": arguments}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        pid = int(self.process.stdout.readline())
        wait_until(lambda: start in self.output.read_text(), start)
        time.sleep(delay)
        os.kill(pid, number)
        code = int(self.process.stdout.readline())
        return self.output.read_text(), code


@pytest.fixture
def commands(tmp_path):
    # Not pytest's folder, whose names are too long for sockets.
    with tempfile.TemporaryDirectory(prefix="train-") as temporary:
        running = Commands(tmp_path, temporary)
        try:
            yield running
        finally:
            running.process.kill()
            running.process.communicate()


def saved_steps(run):
    """Steps of the newest checkpoint; every file of the run is whole."""
    store = CheckpointStore(run / "checkpoints")
    steps = [load(path)["steps"] for path in store.paths()]
    assert steps == sorted(steps, reverse=True)
    assert [f"checkpoint_{n:012d}.pt" for n in steps] == [path.name for path in store.paths()]
    assert read_config(run)["environment"]["env"] == "CartPole-v1"
    assert (run / "command.txt").read_text().endswith("\n")
    assert logged_steps(run) is not None
    return steps[0]


def logged_steps(run):
    text = (run / "metrics.csv").read_text()
    assert text.endswith("\n")
    header, *rows = csv.reader(text.splitlines())
    assert all(len(row) == len(header) for row in rows)
    steps = [int(row[0]) for row in rows]
    assert steps == sorted(steps)
    return steps


def unfinished(run):
    """Files that were being written."""
    return [path.name for path in run.rglob(".*")]


@pytest.mark.slow  # a minute on a quiet machine
def test_a_run_goes_on_after_interruptions_at_random_instants(commands, tmp_path):
    runs = tmp_path / "runs"
    flags = "--env CartPole-v1 --workers 1 --envs-per-worker 4 --rollout 8 --batch 4 --serial "
    flags += "--checkpoint-every 64 --log-every 0.02 --no-tensorboard"
    assert train.run([*flags.split(), "--total-steps", "64", "--run-dir", str(runs)]) == 0
    (run,) = (path for path in runs.iterdir() if not path.is_symlink())
    steps = [saved_steps(run)]
    learned = 0
    resume = ["--resume", str(run), "--total-steps", "1000000000"]
    chance = random.Random(5)
    for turn in range(INSTANTS):
        number = SIGNALS[turn % len(SIGNALS)]
        parallel = turn % WITH_PROCESSES == WITH_PROCESSES - 1
        mode = "--no-serial" if parallel else "--serial"
        start = chance.choice(["", "writing to", "first batch"])
        delay = chance.uniform(0.0, 4.0 if parallel else 1.0)
        said, code = commands.interrupt([*resume, mode], number, start, delay)
        assert code in (-number, 128 + number), said
        assert "Traceback" not in said
        assert "error" not in said
        steps.append(saved_steps(run))
        assert steps[-1] >= steps[-2]
        learned += steps[-1] > steps[-2]
        if "saving a checkpoint" in said:  # all that it had learned and logged
            assert logged_steps(run)[-1] <= steps[-1]
            assert steps[-1] == steps[-2] or unfinished(run) == []
        if f"going on from {run}" in said:
            assert f"checkpoint_{steps[-2]:012d}.pt" in said
        wait_until(lambda: not workers_of(commands.process.pid), "the end of its workers", PATIENCE)
    assert learned > INSTANTS / 5  # not always too early
