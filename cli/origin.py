"""Where a run comes from: versions, commit, host. It is kept with the run's settings."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sampler.envs.screens import kernel_built
from sampler.process.resources import available_cores

PACKAGES = ("fastrl", "torch", "numpy", "gymnasium", "ale-py")
GIT_TIMEOUT = 5.0  # seconds


def origin(settings: str) -> dict[str, Any]:
    """Plain values for config.json and log.txt.

    settings: the line that says where the settings come from and what was changed.
    """
    return {
        "settings": settings,
        "versions": {"python": platform.python_version()} | {p: _version(p) for p in PACKAGES},
        "commit": commit(Path.cwd()),
        "host": platform.node(),
        "cores": available_cores(),
        "atari_kernel": kernel_built(),
    }


def describe(found: dict[str, Any]) -> str:
    """`found` without the settings, as a line."""
    versions = ", ".join(f"{package} {number}" for package, number in found["versions"].items())
    where = f"on {found['host']} with {found['cores']} cores"
    return f"{versions}; commit {found['commit'] or 'unknown'}; {where}"


def commit(folder: Path) -> str | None:
    """The commit of the git checkout that `folder` is in; None where there is none, or no git.

    It ends in "+changes" where tracked files differ from it.
    """
    if (found := _git(folder, "rev-parse", "HEAD")) is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{found}+changes" if changes else found


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        ran = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


def _version(package: str) -> str | None:
    """The installed version; None where it runs from a folder that was never installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
