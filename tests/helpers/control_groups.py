"""A tree of control groups in a folder, in place of the machine's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MOUNTS = {
    "v2": "25 18 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
    "v1": "32 31 0:29 / /sys/fs/cgroup/{0} rw,relatime shared:9 - cgroup cgroup rw,{0}",
}


class ControlGroups:
    """Files of control groups under `root`, for `sampler.process.cgroups.ROOT`."""

    def __init__(self, root: Path):
        self.root = root
        self.write("/proc/self/cgroup", "")
        self.write("/proc/self/mountinfo", "")

    def write(self, path: str, text: str) -> None:
        """Write a file by its absolute path in the tree."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text and text + "\n")

    def version_2(self, group: str, files: Mapping[str, str]) -> None:
        """Be in `group` of version 2; `files` are paths below the root group."""
        self.write("/proc/self/cgroup", f"0::{group}")
        self.write("/proc/self/mountinfo", MOUNTS["v2"])
        for path, text in files.items():
            self.write(f"/sys/fs/cgroup/{path}", text)

    def version_1(self, controllers: str, group: str, files: Mapping[str, str]) -> None:
        """Be in `group` of one tree of version 1, beside an empty tree of version 2."""
        self.write("/proc/self/cgroup", f"3:cpuset:/\n4:{controllers}:{group}\n0::/init.scope")
        mounts = [MOUNTS["v1"].format(name) for name in ("cpuset", controllers)]
        unified = MOUNTS["v2"].replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
        self.write("/proc/self/mountinfo", "\n".join([*mounts, unified]))
        for path, text in files.items():
            self.write(f"/sys/fs/cgroup/{controllers}/{path}", text)
