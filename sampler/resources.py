"""What this machine gives the process: cores, threads, and native bfloat16."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import ceil

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)


def available_cores() -> int:
    """Cores that this process may really use: its affinity, or its cgroup's quota if less."""
    cores = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        cores = min(cores, ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no quota
    return max(1, cores)


@cache
def cpu_has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 natively (AVX512-BF16, AMX or Arm's BF16)."""
    with open("/proc/cpuinfo") as file:
        flags = {flag for line in file if ":" in line for flag in line.split(":", 1)[1].split()}
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


@contextmanager
def thread_environment(threads: int) -> Iterator[None]:
    """Children started inside this block see `threads` as their number of threads.

    Numeric libraries read these variables once, when they are loaded, so they must be set before.
    """
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update({name: str(threads) for name in THREAD_VARIABLES})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
