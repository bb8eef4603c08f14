from __future__ import annotations

import os
import resource

import pytest

from sampler import ConfigError
from sampler.process.resources import (
    THREAD_VARIABLES,
    available_cores,
    available_processes,
    check_limits,
    let_threads_sleep,
    spare_threads,
    thread_environment,
)


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch):
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1), ("x", 8)]
)
def test_cores_are_those_of_the_affinity_and_the_quota(groups, eight_cores, text, cores):
    groups.version_2("/", {"cpu.max": text})
    assert available_cores() == cores


@pytest.mark.parametrize(
    ("inner", "outer", "cores"), [("max", "3", 3), ("2", "3", 2), ("5", "3", 3)]
)
def test_the_least_quota_of_nested_groups_holds(groups, eight_cores, inner, outer, cores):
    files = {"pod/c1/cpu.max": f"{inner} 1", "pod/cpu.max": f"{outer} 1", "cpu.max": "max 1"}
    groups.version_2("/pod/c1", files)
    assert available_cores() == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 6), ("250000", 3)])
def test_quotas_of_version_1(groups, eight_cores, quota, cores):
    files = {
        "slurm/job/cpu.cfs_quota_us": quota,
        "slurm/job/cpu.cfs_period_us": "100000",
        "slurm/cpu.cfs_quota_us": "600000",
        "slurm/cpu.cfs_period_us": "100000",
    }
    groups.version_1("cpu,cpuacct", "/slurm/job/step_0", files)
    assert available_cores() == cores


@pytest.mark.parametrize(("given", "cores"), [("4", 4), ("16", 8), ("0", 8), ("", 8), ("4(x2)", 8)])
def test_cores_that_slurm_has_given_the_task(groups, eight_cores, monkeypatch, given, cores):
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", given)
    assert available_cores() == cores


def test_cores_without_a_control_group(groups, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    assert available_cores() == 3


@pytest.mark.parametrize(
    ("workers", "policy_workers", "threads"),
    [(2, 1, 3), (2, 0, 6), (2, 5, 1), (8, 1, 1), (20, 1, 1)],
)
def test_what_rollout_workers_leave_over_is_shared(
    groups, eight_cores, workers, policy_workers, threads
):
    assert spare_threads(workers, policy_workers) == threads


@pytest.mark.parametrize(("given", "policy"), [(None, "passive"), ("active", "active")])
def test_threads_sleep_unless_the_user_has_them_spin(monkeypatch, given, policy):
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    let_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == policy


def test_the_environment_is_put_back_after_an_error(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = dict(os.environ)
    with pytest.raises(ZeroDivisionError), thread_environment(2):  # noqa: PT012
        assert os.environ["OMP_NUM_THREADS"] == "2"
        1 / 0  # noqa: B018
    assert dict(os.environ) == before


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


def test_processes_are_counted_before_anything_starts(groups, monkeypatch):
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: unlimited)
    groups.version_2("/", {"pids.max": "max", "pids.current": "90"})
    check_limits(1000, bells=1)
    groups.version_2("/", {"pids.max": "100"})
    check_limits(10, bells=1)
    with pytest.raises(ConfigError) as caught:
        check_limits(11, bells=1)
    assert str(caught.value) == (
        "11 worker processes are asked for but only 10 more may run; raise the limit (ulimit -u, "
        "or pids.max of the control group), or lower workers"
    )


def test_a_group_around_ours_may_have_fewer_processes_left(groups, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    counts = {"job/step/pids.max": "50", "job/step/pids.current": "1"}
    groups.version_2("/job/step", {**counts, "job/pids.max": "60", "job/pids.current": "40"})
    assert available_processes() == 20
    groups.version_1("pids", "/job/step", {**counts, "job/step/pids.max": "11"})
    assert available_processes() == 10
