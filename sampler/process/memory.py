"""How much memory this process may still take."""

from __future__ import annotations

from pathlib import Path


def available_memory() -> int:
    """Bytes that this process may still allocate: the machine's, or its cgroup's if fewer."""
    import psutil  # not at the top: workers have no use for it

    available = psutil.virtual_memory().available
    for folder, limit_file, used_file, cache in (
        ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        (
            "/sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ):
        try:
            limit = int(Path(folder, limit_file).read_text())
            used = int(Path(folder, used_file).read_text())
            counts = Path(folder, "memory.stat").read_text().split()
        except (OSError, ValueError):
            continue  # no such cgroup version, or "max": no limit
        # Cached files that nobody uses make room for memory that somebody does.
        reclaimable = int(counts[counts.index(cache) + 1]) if cache in counts else 0
        available = min(available, limit - used + reclaimable)
    return available
