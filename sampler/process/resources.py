"""What the machine offers this process: cores, threads, files, processes and native bfloat16."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import ceil

from sampler.errors import ConfigError
from sampler.process import cgroups

FILES_PER_WORKER = 2  # the ends of the pipes that report its death and ours
SPARE_FILES = 24  # shared memory, multiprocessing's servers, and files open briefly at the start

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)


def available_cores() -> int:
    """Cores that this process may really use: the smallest of all limits.

    That is its affinity, the quotas of the control groups that it is in (a part of a core counts
    as one), and what Slurm has given the task.
    """
    grants = [len(os.sched_getaffinity(0)), *_quotas()]
    given_by_slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if given_by_slurm.isdecimal() and int(given_by_slurm):
        grants.append(int(given_by_slurm))
    return max(1, min(grants))


def _quotas() -> list[int]:
    """Cores that each control group with a quota grants."""
    pairs = [text.split() for _, text in cgroups.limits("cpu", "cpu.max")]
    for folder, quota in cgroups.limits("cpu", "cpu.cfs_quota_us"):
        pairs.append([quota, str(cgroups.number(folder / "cpu.cfs_period_us"))])
    # Without a quota the first word is "max", or -1.
    return [ceil(int(pair[0]) / int(pair[1])) for pair in pairs if all(map(str.isdecimal, pair))]


def check_limits(processes: int, bells: int) -> None:
    """Raise ConfigError, with need and limit, if that many workers cannot be started.

    `bells`: descriptors that the processes share.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))
    needed = opened + bells + FILES_PER_WORKER * processes + SPARE_FILES
    if limit != resource.RLIM_INFINITY and needed > limit:
        raise ConfigError(
            f"{processes} worker processes need {needed} open files but the limit is {limit}; "
            f"raise it (ulimit -n {needed}), or lower workers"
        )
    available = available_processes()
    if available is not None and processes > available:
        raise ConfigError(
            f"{processes} worker processes are asked for but only {available} more may run; "
            "raise the limit (ulimit -u, or pids.max of the control group), or lower workers"
        )


def available_processes() -> int | None:
    """Processes and threads that may still be started; None: no limit is known."""
    available = []
    for folder, limit in cgroups.limits("pids", "pids.max"):
        used = cgroups.number(folder / "pids.current")
        if limit.isdecimal() and used is not None:  # not "max"
            available.append(int(limit) - used)
    limit_of_user, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit_of_user != resource.RLIM_INFINITY and os.geteuid() != 0:  # root has none
        import psutil

        own = [p.info for p in psutil.process_iter(["uids", "num_threads"]) if p.info["uids"]]
        used_by_user = sum(i["num_threads"] or 0 for i in own if i["uids"].real == os.getuid())
        available.append(limit_of_user - used_by_user)
    return max(0, min(available)) if available else None


def spare_threads(workers: int, policy_workers: int) -> int:
    """Threads for the learner, and for each policy worker, where all of them compute on the CPU.

    They share the cores that single-threaded rollout workers leave free. More threads than cores
    would wait for one another at every operation, which is far slower than one thread.
    """
    return max(1, (available_cores() - workers) // (policy_workers + 1))


def let_threads_sleep() -> None:
    """Make OpenMP's threads sleep while they wait, unless the user's environment decides.

    By default they spin, which takes the cores from the workers. Works before torch is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


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
