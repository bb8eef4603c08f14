"""Looking at processes and descriptors, and waiting for them, without guessing how long."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from sampler import Sampler

PATIENCE = 60.0  # seconds that anything may take on a busy machine before a test fails


def wait_until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """The first true value of `condition()`; fails after `patience` seconds."""
    deadline = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {patience:.0f} s for {what}"
        time.sleep(0.005)
    return value


def open_files(pid: int | str = "self") -> list[str]:
    """What a process's descriptors refer to, sorted; without numbers that differ every time."""
    gc.collect()  # what earlier tests left in cycles
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(os.readlink(entry))
        except FileNotFoundError:
            continue  # the listing's own
    return sorted(name.split(":[")[0] for name in names)


def workers_of(pid: int | None = None) -> list[psutil.Process]:
    """Living descendants of a process, except multiprocessing's own two servers."""
    found = []
    for child in psutil.Process(pid).children():
        try:
            line = " ".join(child.cmdline())
            below = child.children(recursive=True)
        except psutil.NoSuchProcess:
            continue
        helper = "multiprocessing.forkserver" in line or "multiprocessing.resource_tracker" in line
        found += below if helper else [child, *below]
    return [process for process in found if is_alive(process)]


def all_ready(sampler: Sampler) -> bool:
    """Whether every worker has started, or started again."""
    stats = sampler.stats()
    return all(worker["ready"] for worker in stats["rollout"] + stats["policy"])


def fork_server(pid: int | None = None) -> psutil.Process:
    """The fork server of a process."""
    (server,) = (
        child
        for child in psutil.Process(pid).children()
        if is_alive(child) and "multiprocessing.forkserver" in " ".join(child.cmdline())
    )
    return server


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def marked(mark: str) -> list[psutil.Process]:
    """Living processes that have `mark` in their environment, whoever started them."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if mark.encode() in environment and is_alive(process):
            found.append(process)
    return found
