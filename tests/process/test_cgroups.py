from __future__ import annotations

from pathlib import Path

from sampler.process import cgroups

INNER = "/user.slice/run-1.scope"


def found(groups, controller, file):
    """Folders below the mount point, and what the file says in them."""
    top = groups.root / "sys/fs/cgroup"
    return [(str(f.relative_to(top)), text) for f, text in cgroups.limits(controller, file)]


def test_nested_groups_are_read_from_the_inside_out(groups):
    files = {"user.slice/run-1.scope/cpu.max": "1 2", "user.slice/cpu.max": "max 2"}
    groups.version_2(INNER, {**files, "other.slice/cpu.max": "7 7"})
    assert found(groups, "cpu", "cpu.max") == [
        ("user.slice/run-1.scope", "1 2"),
        ("user.slice", "max 2"),
    ]


def test_version_1_has_a_tree_for_each_controller(groups):
    groups.version_1("cpu,cpuacct", "/slurm/job_3/step_0", {"slurm/job_3/cpu.cfs_quota_us": "-1"})
    groups.write("/sys/fs/cgroup/cpuset/slurm/job_3/cpu.cfs_quota_us", "9")
    groups.write("/sys/fs/cgroup/unified/cpu.max", "8 8")
    assert found(groups, "cpu", "cpu.cfs_quota_us") == [("cpu,cpuacct/slurm/job_3", "-1")]
    assert found(groups, "cpu", "cpu.max") == [("unified", "8 8")]
    assert found(groups, "memory", "cpu.cfs_quota_us") == []


def test_a_container_sees_its_group_as_the_mounted_one(groups):
    """Its own path is known by the host's name, with or without that as the mount's root."""
    for mount_root in ("/docker/c0ffee", "/docker"):
        mount = f"25 18 0:22 {mount_root} /sys/fs/cgroup ro - cgroup2 cgroup2 rw"
        groups.version_2("/docker/c0ffee", {"cpu.max": "3 4"})
        groups.write("/proc/self/mountinfo", mount)
        assert found(groups, "cpu", "cpu.max") == [(".", "3 4")]
    groups.version_2("/../../elsewhere", {})
    assert found(groups, "cpu", "cpu.max") == [(".", "3 4")]


def test_a_machine_without_control_groups_has_no_limits(groups, monkeypatch):
    assert cgroups.limits("cpu", "cpu.max") == []
    monkeypatch.setattr(cgroups, "ROOT", Path("/nowhere"))
    assert cgroups.limits("cpu", "cpu.max") == []


def test_numbers(groups):
    groups.write("/five", "5")
    groups.write("/max", "max")
    numbers = [cgroups.number(groups.root / name) for name in ("five", "max", "missing")]
    assert numbers == [5, None, None]
