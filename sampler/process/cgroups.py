"""Limits that the control groups (cgroups) of this process set.

Version 2 has one tree of groups, version 1 a tree for each controller, and a machine may have both.
A process is held to the limits of its own group and of every group around that one, up to the root
of what is mounted here: systemd limits units, Slurm jobs and their steps, Kubernetes pods and the
containers in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")  # of the file system


def limits(controller: str, file: str) -> list[tuple[Path, str]]:
    """The content of `file` in each group of this process that has it, the innermost group first.

    `controller` is cpu, memory or pids. Each item is a group's folder and the text of the file,
    stripped; none where there are no control groups.
    """
    found = []
    for folder in _groups(controller):
        try:
            found.append((folder, (folder / file).read_text().strip()))
        except OSError:
            continue  # a group of the other version, or one without this controller
    return found


def number(path: Path) -> int | None:
    """The whole number in a file; None without the file, or where it holds another word ("max")."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _groups(controller: str) -> Iterator[Path]:
    """Folders of the process's groups that the controller may be in, the innermost first."""
    try:
        memberships = (ROOT / "proc/self/cgroup").read_text().splitlines()
        mounts = (ROOT / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return
    for line in memberships:
        _, controllers, path = line.split(":", 2)  # version 2 names no controllers
        if controllers and controller not in controllers.split(","):
            continue
        for mount in mounts:
            about, _, kind = mount.partition(" - ")
            root, point = about.split()[3:5]
            system, _, options = kind.split(maxsplit=2)
            if system != ("cgroup" if controllers else "cgroup2"):
                continue
            if controllers and controller not in options.split(","):
                continue
            top = ROOT / point.lstrip("/")
            own = top / _below(path, root)
            yield from (own, *(folder for folder in own.parents if folder.is_relative_to(top)))
            break


def _below(path: str, root: str) -> Path:
    """A group's path below the group that is mounted; empty if it is not below it."""
    group = Path(path)
    if ".." in group.parts or not group.is_relative_to(root):
        return Path()  # the path is from another namespace; only the mounted group is visible
    return group.relative_to(root)
