"""Limits of the machine: what fits runs, what does not is refused in one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers.processes import PATIENCE, all_ready, open_files, wait_until, workers_of

from sampler import Sampler, SamplerConfig

RUN = """
    from sampler import FastrlError, Sampler, SamplerConfig
    config = SamplerConfig(env="fastrl/{env}-v0", workers={workers}, envs_per_worker={envs},
                           groups=1, rollout=8, batch={envs}, buffers={buffers},
                           inference="random")
    try:
        with Sampler(config) as sampler:
            for _ in range({batches}):
                sampler.get_batch()
            print("fine", sampler.stats()["restarts"])
    except FastrlError as error:
        print(type(error).__name__, error)
"""


SMALL_DEV_SHM = "mount -t tmpfs -o size=64m tmpfs /dev/shm"


def limited(limit, env="Counter", workers=2, envs=2, batches=5, buffers="None", under=()):
    """What a run prints after a shell's command `limit`; nothing else may come out."""
    script = textwrap.dedent(RUN.format(**locals()))
    ran = subprocess.run(
        [*under, "bash", "-c", f'{limit} && exec "$0" -c "$1"', sys.executable, script],
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert ran.stderr == ""
    assert ran.returncode == 0
    return ran.stdout


@pytest.mark.slow
def test_64_workers_with_256_open_files():
    assert limited("ulimit -n 256", workers=64, envs=1, batches=200) == "fine 0\n"


def test_too_few_open_files_are_noticed_at_the_start():
    text = limited("ulimit -n 256", workers=90, envs=1)
    assert re.fullmatch(
        r"ConfigError 91 worker processes need (\d+) open files but the limit is 256; "
        r"raise it \(ulimit -n \1\), or lower workers\n",
        text,
    )


def test_too_little_address_space_is_noticed_at_the_start():
    text = limited(f"ulimit -v {3 * 2**20}", env="Null", envs=64, buffers=2000)
    assert text.startswith("ConfigError shared memory of ")
    assert "MiB refused (" in text
    assert text.endswith("; lower buffers=2000, batch=64 or rollout=8, or free memory\n")
    assert text.count("\n") == 1


def test_a_store_larger_than_dev_shm():
    alone = ["unshare", "--mount"]  # only this run sees the small one
    if subprocess.run([*alone, "bash", "-c", SMALL_DEV_SHM], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    sizes = {"env": "Null", "envs": 64, "buffers": 40, "batches": 60}
    assert limited(SMALL_DEV_SHM, under=alone, **sizes) == "fine 0\n"


def test_dev_shm_makes_no_difference():
    """Nothing of it is used, by nobody: the shared memory has no name."""
    config = SamplerConfig(env="fastrl/Null-v0", rollout=64, inference="random")
    with Sampler(config) as sampler:
        wait_until(lambda: all_ready(sampler), "all workers")
        for pid in (os.getpid(), *(worker.pid for worker in workers_of())):
            maps = Path(f"/proc/{pid}/maps").read_text()
            assert "/memfd:fastrl" in maps
            assert "/dev/shm" not in maps
            assert not [name for name in open_files(pid) if name.startswith("/dev/shm")]
