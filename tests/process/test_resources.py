from __future__ import annotations

import os
import resource

import pytest

from sampler import ConfigError
from sampler.process import resources as module
from sampler.process.resources import (
    THREAD_VARIABLES,
    available_cores,
    check_limits,
    thread_environment,
)


@pytest.fixture
def quota(tmp_path, monkeypatch):
    """A control group whose files can be written; others are read as usual."""
    import builtins

    files = {}
    usual = builtins.open

    def open_instead(path, *args, **kwargs):
        if str(path).startswith("/sys/fs/cgroup/"):
            if str(path) not in files:
                raise FileNotFoundError(path)
            copy = tmp_path / str(path).replace("/", "_")
            copy.write_text(files[str(path)])
            path = copy
        return usual(path, *args, **kwargs)

    monkeypatch.setattr(module, "open", open_instead, raising=False)
    return files


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1), ("x", 8)]
)
def test_cores_are_those_of_the_affinity_and_the_quota(quota, monkeypatch, text, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    quota["/sys/fs/cgroup/cpu.max"] = text
    assert available_cores() == cores


def test_cores_without_a_control_group(quota, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    assert available_cores() == 3


def test_threads_are_set_inside_the_block_only(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with thread_environment(2):
        assert [os.environ[name] for name in THREAD_VARIABLES] == ["2"] * len(THREAD_VARIABLES)
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_open_files_are_counted_before_anything_starts(monkeypatch):
    limit = len(os.listdir("/proc/self/fd")) + 100
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    check_limits(10, bells=21)
    for processes, bells in ((50, 10), (10, 100)):
        with pytest.raises(ConfigError, match=rf"files but the limit is {limit}; raise it"):
            check_limits(processes, bells)


def test_processes_are_counted_before_anything_starts(quota, monkeypatch):
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: unlimited)
    quota["/sys/fs/cgroup/pids.max"] = "max"
    quota["/sys/fs/cgroup/pids.current"] = "90"
    check_limits(1000, bells=1)
    quota["/sys/fs/cgroup/pids.max"] = "100"
    check_limits(10, bells=1)
    with pytest.raises(ConfigError) as caught:
        check_limits(11, bells=1)
    assert str(caught.value) == (
        "11 worker processes are asked for but only 10 more may run; raise the limit (ulimit -u, "
        "or pids.max of the control group), or lower workers"
    )
