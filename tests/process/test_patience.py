"""Time in which the caller was stopped itself is nobody else's delay."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import psutil
import pytest
from helpers.processes import workers_of

from sampler.process import patience
from sampler.process.patience import Patience


def test_a_long_gap_counts_as_one_interval(monkeypatch):
    now = 100.0
    monkeypatch.setattr(patience.time, "monotonic", lambda: now)
    clock = Patience(0.5)
    assert clock.look() == 0.0
    now += 0.25
    assert clock.look() == 0.25
    now += 3600.0
    assert clock.look() == 0.75
    now += 0.5
    assert clock.look() == 1.25
    assert clock.seconds == 1.25


SCRIPT = """
    import sys
    from sampler import Sampler, SamplerConfig

    config = SamplerConfig(env="fastrl/Sleep-v0", env_kwargs={"step_us": 1000}, rollout=8, batch=4,
                           inference="random", max_restarts=0, step_timeout=1.0)
    with Sampler(config) as sampler:
        for number in range(20):
            sampler.get_batch()
        print("running", flush=True)
        sys.stdin.readline()
        for number in range(20):
            sampler.get_batch()
    print("fine", flush=True)
"""


@pytest.mark.slow
def test_a_family_that_was_stopped_goes_on():
    script = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    with subprocess.Popen(
        script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "running\n"
        family = [psutil.Process(process.pid), *workers_of(process.pid)]
        assert len(family) == 4
        for member in family:
            member.suspend()
        time.sleep(2.5)  # more than step_timeout
        for member in family:  # the one that watches is the first
            member.resume()
            time.sleep(0.05)
        out, _ = process.communicate("\n")
        assert out == "fine\n"
