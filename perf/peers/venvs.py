"""Environments for the peers: one each, made on first use and kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HOME = Path.home() / ".cache" / "fastrl" / "peers"
STAMP = "requirements.json"  # in a finished environment: its requirements


class NotInstalled(RuntimeError):
    """A peer cannot be installed here; the message says why."""


def environment(folder: Path, name: str, requirements: list[str], python: str) -> str:
    """The interpreter of an environment that has `requirements`; installs it where it is missing.

    Raises NotInstalled with the last line of pip's output.
    """
    home = folder / name
    interpreter = home / "bin" / "python"
    stamp = home / STAMP
    wanted = json.dumps(requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return str(interpreter)
    print(f"Installing {name} into {home} ...", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    _run([python, "-m", "venv", "--clear", str(home)], name)
    _run([str(interpreter), "-m", "pip", "install", "--quiet", *requirements], name)
    stamp.write_text(wanted)
    return str(interpreter)


def version(interpreter: str, package: str) -> str:
    """The version of a package in an environment."""
    code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _run(command: list[str], name: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise NotInstalled(f"{name}: {error}") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        last = (errors or done.stderr.splitlines() or ["no output"])[-1]
        raise NotInstalled(f"{name}: {last.strip()}")
