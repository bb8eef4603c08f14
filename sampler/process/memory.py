"""How much memory this process may still take."""

from __future__ import annotations

from pathlib import Path

from sampler.process import cgroups

GROUP_FILES = (  # limit, usage, and the memory.stat entry of cached files not in use
    ("memory.max", "memory.current", "inactive_file"),  # version 2
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # version 1
)


def available_memory() -> int:
    """Bytes that this process may still allocate: what the machine has, or a control group
    allows."""
    import psutil  # not at the top: workers do not need it

    available = psutil.virtual_memory().available
    for limit_file, used_file, cache in GROUP_FILES:
        for folder, limit in cgroups.limits("memory", limit_file):
            used = cgroups.number(folder / used_file)
            if limit.isdecimal() and used is not None:  # not "max"
                # The kernel drops cached files that are not in use when memory is needed.
                available = min(available, int(limit) - used + _count(folder, cache))
    return available


def _count(folder: Path, name: str) -> int:
    """A count in a group's memory.stat, 0 where it is missing."""
    try:
        counts = (folder / "memory.stat").read_text().split()
    except OSError:
        return 0
    return int(counts[counts.index(name) + 1]) if name in counts else 0
