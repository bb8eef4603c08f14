"""Programs that are measured in turn: each runs only while it is its turn.

A contestant is a context manager with `measure(seconds) -> steps per second`. Programs are
stopped between their turns with SIGSTOP, sent to the process group that they were started in.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import psutil

from perf.measure.rounds import WARM_UP

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
TRACKER = "multiprocessing.resource_tracker"
TRACKER_TIMEOUT = 5.0  # seconds


class ProgramError(RuntimeError):
    """A measured program ended, or did nothing for too long; holds the end of its output."""


class Program:
    """A measured program, which reports its steps as perf/measure/reporting/reporter.py does."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        warm_up: float = WARM_UP,
        start_timeout: float = 180.0,
    ):
        self.command, self.env, self.warm_up = list(command), dict(env or {}), warm_up
        self.start_timeout = start_timeout
        self._reports: list[tuple[float, int]] = []
        self._arrived = threading.Condition()
        self._ended = False

    def __enter__(self) -> Program:
        """Start it, wait until it makes steps, and stop it until its first turn."""
        _unwind_on_sigterm()
        self._log = TemporaryFile()
        reading, writing = os.pipe()
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.env, "PERF_REPORT_FD": str(writing)},
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()
        try:
            self._wait(lambda: self._reports and self._reports[-1][1] > 0, self.start_timeout)
        except BaseException:
            self.close()
            raise
        self._signal(signal.SIGSTOP)
        return self

    def measure(self, seconds: float) -> float:
        """Steps per second over `seconds`, or between two reports if these come more rarely."""
        self._signal(signal.SIGCONT)
        begin = time.monotonic() + self.warm_up
        patience = 4 * (self.warm_up + seconds) + 60
        self._wait(lambda: self._since(begin) and self._lasted(begin, seconds), patience)
        self._signal(signal.SIGSTOP)
        rate = report_rate(self._since(begin))
        if rate <= 0:
            raise self._failure("made no steps")
        return rate

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it with all its children: all processes of the group that it was started in.

        multiprocessing's resource tracker ends by itself after the others, and first removes the
        semaphores that they had in /dev/shm.
        """
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                own = os.getpgid(process.pid) == self._process.pid
                if own and TRACKER not in " ".join(process.cmdline()):
                    process.kill()
        self._process.wait()
        self._signal(signal.SIGCONT)
        deadline = time.monotonic() + TRACKER_TIMEOUT
        while self._has_processes() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._signal(signal.SIGKILL)
        self._reader.join(timeout=10)
        self._log.close()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _has_processes(self) -> bool:
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _since(self, begin: float) -> list[tuple[float, int]]:
        return [report for report in self._reports if report[0] >= begin]

    def _lasted(self, begin: float, seconds: float) -> bool:
        reports = self._since(begin)
        return len(reports) >= 2 and reports[-1][0] - begin >= seconds

    def _wait(self, done, timeout: float) -> None:
        with self._arrived:
            if self._arrived.wait_for(lambda: self._ended or done(), timeout) and not self._ended:
                return
        raise self._failure("ended" if self._ended else f"reported nothing for {timeout:.0f} s")

    def _failure(self, what: str, lines: int = 3) -> ProgramError:
        # pread, since a seek would move the position at which the program writes.
        size = os.fstat(self._log.fileno()).st_size
        log = os.pread(self._log.fileno(), size, 0).decode(errors="replace")
        said = COLOURS.sub("", log).strip().splitlines()
        errors = [line.strip() for line in said if "Error" in line]
        words = " | ".join((errors or said)[-lines:])
        return ProgramError(f"{shown(self.command)} {what}; its last words: {words}")

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor) as stream:
            for line in stream:
                report = json.loads(line)
                with self._arrived:
                    self._reports.append((report["time"], report["steps"]))
                    self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()


def shown(words: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """A command as one would type it in the current folder."""
    places = (
        (sys.executable, "python"),
        (sys.prefix, ".venv"),
        (f"{Path.cwd()}/", ""),
        (str(Path.home()), "~"),
    )
    settings = [f"{name}={value}" for name, value in (env or {}).items()]
    text = " ".join([*settings, *words])
    for place, name in places:
        text = text.replace(place, name)
    return text


def _unwind_on_sigterm() -> None:
    """Make SIGTERM raise an exception in this process, so that programs are ended with it."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def report_rate(reports: Sequence[tuple[float, int]]) -> float:
    """Steps per second between the first and the last of the reports (seconds, steps so far)."""
    (first, steps), (last, total) = reports[0], reports[-1]
    return (total - steps) / (last - first)
