"""Checkpoints that survive a kill at any instant and execute no code when they are loaded.

A file holds plain tensors, numbers, strings, lists and dicts. It is written under a temporary name,
flushed to the disk, compared with its checksums, and only then renamed; older files are removed
after that. A damaged file is never used: the newest undamaged one is loaded instead, and this is
reported.
"""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from sampler.errors import ConfigError, FastrlError

FORMAT = "fastrl-checkpoint"
VERSION = 1
_NAME = re.compile(r"^checkpoint_(\d+)\.pt$")
BEST = "best.pt"


class CheckpointError(FastrlError, RuntimeError):
    """A checkpoint is missing, damaged, or not made by fastrl (exit code 1)."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state` to `path` atomically.

    Whatever happens meanwhile, `path` holds either its old content or all of the new. Raises
    CheckpointError if the disk refuses, or if the file does not read back as written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            torch.save({"format": FORMAT, "version": VERSION, "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        load(temporary, mapped=True)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as a RuntimeError of its own
        if isinstance(error, CheckpointError):
            error = CheckpointError(f"what was written did not read back ({error})")
        raise CheckpointError(
            f"checkpoint {path} could not be written: {_one_line(error)}; "
            "free space there or choose another run folder"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def load(
    path: Path,
    device: str | torch.device = "cpu",
    fields: Sequence[str] = (),
    mapped: bool = False,
) -> dict[str, Any]:
    """The state saved in `path`. Only tensors and plain values are accepted: no code is run.

    fields: what the state must hold; `a.b` is `b` inside `a`. mapped: leave tensors in the file
    until they are used, so that a large state need not fit into memory a second time.

    Raises CheckpointError, in one line, where the file is missing, damaged, or something else, such
    as a state without one of `fields`.
    """
    if not path.is_file():
        raise CheckpointError(f"checkpoint {path} does not exist; check the run folder's name")
    try:
        # torch.load does not compare checksums: a flipped bit would become a wrong weight. This
        # reads the file piece by piece.
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise zipfile.BadZipFile(f"checksum of {broken} is wrong")
        content = torch.load(path, map_location=device, weights_only=True, mmap=mapped)
    except UnpicklingError as error:
        raise CheckpointError(
            f"checkpoint {path} is damaged or foreign: it holds more than tensors and plain "
            "values, and no code of a file is run; use an older one"
        ) from error
    except Exception as error:
        raise CheckpointError(
            f"checkpoint {path} is damaged or foreign: {_one_line(error)}; use an older one"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"checkpoint {path} was not written by fastrl; use one that was")
    if content.get("version") != VERSION:
        raise CheckpointError(
            f"checkpoint {path} has format version {content.get('version')}, "
            f"this fastrl reads version {VERSION}; use the release that wrote it"
        )
    state: Any = content.get("state")
    for name in fields:
        if not _holds(state, name):
            raise CheckpointError(f"checkpoint {path} lacks {name!r}; use one of a training run")
    return state


def nbytes(state: Any) -> int:
    """Bytes of the tensors in a state."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    if isinstance(state, dict):
        return sum(map(nbytes, state.values()))
    return sum(map(nbytes, state)) if isinstance(state, list | tuple) else 0


class CheckpointStore:
    """The checkpoints of one run: the last few, by step count, and the best by evaluation."""

    def __init__(
        self,
        folder: Path | str,
        keep: int = 3,
        report: Callable[[str], None] = warnings.warn,
        fields: Sequence[str] = (),
    ) -> None:
        """`keep`: regular checkpoints kept (at least 2); `report` is called with a line for each
        damaged file.

        `fields`: what every state must hold to be loaded.
        """
        if keep < 2:
            raise ConfigError(f"keep={keep} must be at least 2: one may turn out to be damaged")
        self.folder = Path(folder)
        self.keep = keep
        self._report = report
        self._fields = fields

    @property
    def best(self) -> Path:
        """Path of the best checkpoint, once one was saved."""
        return self.folder / BEST

    def paths(self) -> list[Path]:
        """The regular checkpoints, newest first."""
        if not self.folder.is_dir():
            return []
        found = [(int(m[1]), p) for p in self.folder.iterdir() if (m := _NAME.match(p.name))]
        return [path for _, path in sorted(found, reverse=True)]

    def save(self, state: dict[str, Any], steps: int) -> Path:
        """Save the state after `steps` agent steps; then remove all but the newest `keep`."""
        path = self.folder / f"checkpoint_{steps:012d}.pt"
        save(path, state)
        for old in self.paths()[self.keep :]:
            old.unlink(missing_ok=True)
        for leftover in self.folder.glob(".*.pt.*.tmp"):  # of a process that was killed here
            leftover.unlink(missing_ok=True)
        return path

    def save_best(self, state: dict[str, Any]) -> Path:
        """Replace the best checkpoint by `state`."""
        save(self.best, state)
        return self.best

    def load_latest(self, device: str | torch.device = "cpu") -> tuple[dict[str, Any], Path]:
        """The newest checkpoint that is whole, and its path; each damaged one is reported.

        Raises CheckpointError if there is none, rather than silently starting afresh.
        """
        paths = self.paths()
        if not paths:
            raise CheckpointError(
                f"{self.folder} holds no checkpoint; check the run folder's name, "
                "or start a new run"
            )
        for path in paths:
            try:
                state = load(path, device, self._fields)
            except CheckpointError as error:
                self._report(f"{error} (falling back to the one before)")
            else:
                return state, path
        raise CheckpointError(
            f"all {len(paths)} checkpoints in {self.folder} are damaged; restore one from a "
            "backup, or start a new run"
        )


def _holds(state: Any, name: str) -> bool:
    """Whether nested dicts hold `name`, whose parts are separated by dots."""
    first, _, rest = name.partition(".")
    held = isinstance(state, dict) and first in state
    return held and (not rest or _holds(state[first], rest))


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _one_line(error: BaseException) -> str:
    """The first line of an error's message, or its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
