"""One folder per run, holding everything the run wrote and everything needed to continue it.

runs/{env}__{algo}__{seed}__{time}/
    config.json    every setting, in groups
    command.txt    the command line of each start
    metrics.csv    one row per report, and the same numbers as TensorBoard events
    checkpoints/   plain tensors and numbers
    log.txt        what was printed, with times; rotated
runs/latest        a link to the newest run that has learned and saved something
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from cli.files import write_all
from sampler.errors import ConfigError, FastrlError

LOG_BYTES = 5_000_000  # bytes in log.txt before it becomes log.txt.1
LOG_COPIES = 3

logger = logging.getLogger("fastrl.cli")


class RunFolder:
    """An open run folder, locked against a second process for as long as it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.json"
        self.command_file = path / "command.txt"
        self.metrics_file = path / "metrics.csv"
        self.log_file = path / "log.txt"
        self.checkpoints = path / "checkpoints"
        self._lock: int | None = _lock(path)
        self._log_handler: logging.Handler | None = None

    @classmethod
    def create(cls, root: str | Path, env: str, algo: str, seed: int) -> RunFolder:
        """Make a new folder under `root`; `link_latest` points `root/latest` at it.

        Raises ConfigError where the folder cannot be made; an existing one is never used.
        """
        root = Path(root)
        _check_link(root / "latest")
        name = f"{_file_name(env)}__{_file_name(algo)}__{seed}__{time.strftime('%Y%m%d-%H%M%S')}"
        path = _new_directory(root, name)
        run = cls(path)
        run.checkpoints.mkdir()
        return run

    @classmethod
    def open(cls, name: str | Path, root: str | Path = "runs") -> RunFolder:
        """Open an existing run by its path or by its name under `root` (or `latest`).

        Raises ConfigError if there is no such run, FastrlError if another process has it open.
        """
        return cls(find_run(name, root))

    def save_config(self, config: Mapping[str, Any]) -> None:
        """Write config.json, whole or not at all; it holds the settings of the newest start."""
        _write(self.config_file, json.dumps(config, indent=2) + "\n")

    def note_command(self, command: Sequence[str]) -> None:
        """Add a line with the time and the command to command.txt."""
        with _named(self.command_file), self.command_file.open("ab", buffering=0) as file:
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {shlex.join(command)}\n"
            write_all(file, line.encode(errors="backslashreplace"))

    def start_log(self) -> None:
        """Send this process's log records (level INFO and above) and warnings to log.txt."""
        handler = _LogFile(self.log_file, maxBytes=LOG_BYTES, backupCount=LOG_COPIES)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(min(root.level or logging.WARNING, logging.INFO))
        logging.captureWarnings(True)
        self._log_handler = handler

    def close(self) -> None:
        """Close the log and release the lock. Calling it again does nothing."""
        if self._log_handler is not None:
            logging.captureWarnings(False)
            logging.getLogger().removeHandler(self._log_handler)
            self._log_handler.close()
            self._log_handler = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception) and self._log_handler is not None:
            logger.error("the run failed", exc_info=error)
        self.close()


class _LogFile(RotatingFileHandler):
    """Skips records that a full disk refuses; checkpoints report the disk."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Prints no traceback for every such record."""

    def close(self) -> None:
        """Nor an error for records that are still buffered."""
        with suppress(OSError):
            super().close()


def find_run(name: str | Path, root: str | Path = "runs") -> Path:
    """The folder of a run given by its path or by its name under `root`.

    Raises ConfigError, naming the closest matches, if it is not a run folder.
    """
    for path in (Path(name), Path(root) / name):
        if (path / "config.json").is_file():
            return path.resolve()
    if Path(name).is_dir():
        raise ConfigError(
            f"run {str(name)!r} holds no config.json: not a folder that fastrl-train made"
        )
    runs = [file.parent for file in Path(root).glob("*/config.json")]
    known = max((run for run in runs if not run.is_symlink()), key=_modified, default=None)
    hint = f"there is none under {root}" if known is None else f"the newest is {known}"
    raise ConfigError(f"no run {str(name)!r}: {hint}")


def read_config(path: Path) -> dict[str, Any]:
    """The settings saved in run folder `path`. Raises ConfigError if they are damaged."""
    file = path / "config.json"
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read ({error}); restore it or start anew") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{file} holds no settings; restore it or start anew")
    return config


def _modified(path: Path) -> float:
    return path.stat().st_mtime


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "env"


def _new_directory(root: Path, name: str) -> Path:
    """Make a new directory; a number is added to a name that is taken."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            path = root / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path.resolve()
    except OSError as error:
        raise ConfigError(
            f"run_dir={str(root)!r} cannot hold a run ({error.strerror}); give another --run-dir"
        ) from None
    raise ConfigError(f"run_dir={str(root)!r} holds a thousand runs of this second already")


def link_latest(path: Path) -> None:
    """Point the link `latest` beside run folder `path` at it."""
    temporary = path / ".latest"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(path.name)  # relative to the link's own folder
    os.replace(temporary, path.parent / "latest")


def _check_link(link: Path) -> None:
    if link.exists() and not link.is_symlink():
        raise ConfigError(f"{link} is not a link and would be overwritten; move it away")


def _write(file: Path, text: str) -> None:
    """Write the whole file or nothing, under another name first, and rename it."""
    temporary = file.with_name(f".{file.name}")
    with _named(file):
        temporary.write_text(text)
        os.replace(temporary, file)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Adds the file's name to errors of the disk in this block, as those of writing lack it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise FastrlError(f"run {path} is in use by another process; stop that one first") from None
    return descriptor
