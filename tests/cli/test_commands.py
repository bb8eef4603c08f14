"""The commands in processes of their own: signals, limits, nothing left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from helpers.processes import PATIENCE, wait_until
from helpers.runs import SMALL, only_run, rows_of, words

from sampler.learner.checkpoint import CheckpointStore

ROOT = Path(__file__).parents[2]


def command(folder, *arguments, module="train", program=None, **variables):
    """A process of its own, with all of its workers; it may take its time to stop, for the machine
    may be busy."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    usual = f"from cli import exits, {module}; exits.GRACE_SECONDS = 60.0; {module}.main()"
    return subprocess.Popen(
        [sys.executable, "-c", program or usual, *arguments],
        cwd=folder,
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(process, start):
    """Read the command's output up to a line that begins with `start`."""
    for line in process.stdout:
        if line.startswith(start):
            return
    raise AssertionError(f"{start!r} was never printed: {process.stderr.read()}")


def stack_of(process):
    """What the command's threads are doing; it prints the main one last, outermost call last."""
    process.send_signal(signal.SIGUSR1)
    lines = [process.stderr.readline()]
    while not lines[-1].startswith('  File "<string>"'):
        lines.append(process.stderr.readline())
        assert lines[-1], "the command has ended"
    return "".join(lines)


@pytest.mark.slow
def test_the_whole_command_with_evaluation(tmp_path):
    often = words("--total-steps 6000 --eval-every 3000 --eval-episodes 4 --log-every 1")
    process = command(tmp_path, *SMALL, *often)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert err == ""
    assert "evaluated step" in out
    run = only_run(tmp_path / "runs")
    assert (run / "checkpoints" / "best.pt").exists()
    assert not list((run / "checkpoints").glob("evaluated*"))
    evaluated = [row for row in rows_of(run) if row["eval/episodic_return"]]
    assert int(evaluated[-1]["step"]) == int(rows_of(run)[-1]["step"])
    process = command(tmp_path, "--checkpoint", "best", module="evaluate")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "10 whole games" in out


@pytest.fixture
def temporary():
    """An empty folder in place of /tmp; not pytest's, whose names are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="train-") as folder:
        yield Path(folder)


def left_in(temporary):
    """What is in the folder, except torch's cache, which all runs share."""
    return [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor")]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_a_signal_ends_a_run_with_a_checkpoint_and_nothing_left(
    tmp_path, temporary, number, code, send
):
    """Also one that the whole group gets, as from a terminal or from `timeout`."""
    process = command(tmp_path, *SMALL, "--total-steps", "10000000", TMPDIR=str(temporary))
    wait_for(process, "first batch")
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    send(process.pid, number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert err.count("\n") == 1
    assert f"--resume {only_run(tmp_path / 'runs')}" in err
    _, alive = psutil.wait_procs(children, timeout=PATIENCE)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    assert left_in(temporary) == []
    state, _ = CheckpointStore(only_run(tmp_path / "runs") / "checkpoints").load_latest()
    assert state["steps"] > 0


@pytest.mark.slow
def test_a_second_signal_ends_a_run_at_once_with_nothing_left(tmp_path, temporary):
    process = command(tmp_path, *SMALL, "--total-steps", "10000000", TMPDIR=str(temporary))
    wait_for(process, "first batch")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err == ""
    psutil.wait_procs(children, timeout=PATIENCE)
    assert left_in(temporary) == []


@pytest.mark.slow
def test_a_signal_leaves_an_endless_update_and_saves(tmp_path):
    process = command(tmp_path, *SMALL, *words("--algo ppo --learner.epochs 10000000"))
    wait_for(process, "writing to")
    wait_until(lambda: "in _learn" in stack_of(process), "the update")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err.count("\n") == 1
    assert CheckpointStore(only_run(tmp_path / "runs") / "checkpoints").paths()


LATE = """
import time
from cli import exits, train
from sampler.learner.algorithms.appo import APPO

exits.GRACE_SECONDS, update, calls = 0.5, APPO.update, []

def late(self, batch, publish):
    calls.append(1)
    if len(calls) == 20:
        print("the long update begins", flush=True)
        while True:
            time.sleep(0.1)
    return update(self, batch, publish)

APPO.update = late
train.main()
"""


@pytest.mark.slow
def test_a_signal_in_an_update_without_end_saves_the_weights_from_before_it(tmp_path):
    """An update of one long pass never comes to a step of the optimiser, where it could be left."""
    process = command(tmp_path, *SMALL, program=LATE)
    wait_for(process, "the long update begins")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    run = only_run(tmp_path / "runs")
    state, _ = CheckpointStore(run / "checkpoints").load_latest()
    assert state["batches"] == 19
    assert f"saved step {state['steps']:,}" in out
    assert err.count("\n") == 1
    assert (tmp_path / "runs" / "latest").resolve() == run


@pytest.mark.slow
def test_a_signal_while_workers_start_ends_in_one_line(tmp_path):
    process = command(tmp_path, *SMALL)
    wait_for(process, "appo with settings")  # the preset is chosen
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err.count("\n") == 1


@pytest.mark.slow
def test_few_open_files_are_one_line(tmp_path):
    shell = 'ulimit -n 16; exec "$0" -m cli.train --env CartPole-v1'
    command = ["sh", "-c", shell, sys.executable]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * PATIENCE)
    assert ran.returncode == 2
    assert re.fullmatch(r"fastrl-train: error: 1 .* the limit is 16; raise it .*\n", ran.stderr)


@pytest.mark.slow
def test_help_is_complete(tmp_path):
    out, _ = command(tmp_path, "--help-all").communicate(timeout=PATIENCE)
    for group in ("environment", "sampler", "learner", "model", "logging", "evaluation"):
        assert f"{group} options" in out
