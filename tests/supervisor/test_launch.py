"""Processes that the system refuses to start."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import subprocess
import sys

import pytest
from helpers.processes import open_files, workers_of

from sampler import Sampler, SamplerConfig, WorkerError

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
