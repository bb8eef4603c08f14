"""Numbers of a run, by agent steps: metrics.csv and TensorBoard events with the same tags."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.files import write_all
from sampler.errors import FastrlError, one_line

if TYPE_CHECKING:
    from cli.event_file import Histogram

COLUMNS = (
    "step",
    "seconds",
    "charts/episodic_return",
    "charts/episodic_length",
    "charts/SPS",
    "charts/learning_rate",
    "perf/fps",
    "perf/policy_lag_mean",
    "perf/policy_lag_max",
    "perf/learner_wait",
    "perf/communication_share",
    "perf/batch_size",
    "eval/episodic_return",
    "eval/episodic_return_std",
)
"""The columns every metrics.csv starts with; further tags, such as losses, follow in the order they
appear."""


class MetricsWriter:
    """Writes rows of metrics to a folder's metrics.csv and to TensorBoard.

    Columns never move: a tag seen for the first time is added on the right, and earlier rows are
    empty there. A resumed run drops what was written after `resume_step` (agent steps), since that
    part of the run will be repeated; without it, an existing file is an error.
    """

    def __init__(
        self, folder: Path, resume_step: int | None = None, tensorboard: bool = True
    ) -> None:
        """Raises FastrlError if the disk refuses, or if the folder's metrics.csv is not one."""
        self._path = folder / "metrics.csv"
        self._columns = list(COLUMNS)
        self._events: Any = None
        self._last = 0  # largest step written
        with self._disk():
            if resume_step is not None and self._path.exists():
                self._keep_rows_until(resume_step)
            elif self._path.exists():
                raise FastrlError(f"{self._path} exists; resume its run or write somewhere else")
            else:
                self._rewrite([])
            self._file = self._path.open("ab", buffering=0)
            if tensorboard:
                from cli.event_file import EventFile

                purge_step = None if resume_step is None else resume_step + 1
                self._events = EventFile(folder, purge_step)

    def write(
        self,
        step: int,
        seconds: float,
        metrics: Mapping[str, float],
        histograms: Mapping[str, Histogram] | None = None,
    ) -> None:
        """Add a row at `step` agent steps, `seconds` of training; it is in the file afterwards.

        histograms: for TensorBoard alone. Raises FastrlError where the disk refuses.
        """
        with self._disk():
            self._write(step, seconds, metrics)
            if self._events is not None and histograms:
                self._events.histograms(step, histograms)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Turns errors of the disk in this block into a FastrlError of one line."""
        try:
            yield
        except OSError as error:
            raise FastrlError(
                f"metrics cannot be written to {self._path.parent} ({error.strerror}); free space, "
                "and go on from the last checkpoint with --resume"
            ) from error

    def _write(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        new = [tag for tag in metrics if tag not in self._columns]
        if new:
            self._add_columns(new)
        row: dict[str, Any] = {"step": step, "seconds": f"{seconds:.2f}"}
        row.update((tag, f"{value:.7g}") for tag, value in metrics.items())
        if step < self._last:
            self._insert({name: str(value) for name, value in row.items()})
        else:
            line = io.StringIO()
            csv.writer(line).writerow([row.get(column, "") for column in self._columns])
            write_all(self._file, line.getvalue().encode())
            self._last = step
        if self._events is not None:
            self._events.write(step, metrics)

    def hyperparameters(self, settings: Mapping[str, Any]) -> None:
        """Show nested `settings` in TensorBoard, as a table. Raises FastrlError like `write`."""
        if self._events is not None:
            rows = [f"|{name}|{value}|" for name, value in _flat(settings)]
            with self._disk():
                self._events.text("hyperparameters", "\n".join(["|name|value|", "|-|-|", *rows]))

    def close(self) -> None:
        """Flush and close both. Calling it again does nothing."""
        self._file.close()
        if self._events is not None:
            self._events.close()
            self._events = None

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add_columns(self, new: list[str]) -> None:
        self._file.close()
        _, rows = read_rows(self._path)
        self._columns += new
        self._rewrite(rows)
        self._file = self._path.open("ab", buffering=0)

    def _insert(self, row: dict[str, str]) -> None:
        """Add a row that belongs before others, such as an evaluation of earlier weights, at its
        place, so that steps never decrease."""
        self._file.close()
        _, rows = read_rows(self._path)
        self._rewrite(sorted([*rows, row], key=lambda row: int(row["step"])))
        self._file = self._path.open("ab", buffering=0)

    def _keep_rows_until(self, step: int) -> None:
        columns, rows = read_rows(self._path)
        self._last = min(step, max((int(row["step"]) for row in rows), default=0))
        self._columns = columns + [column for column in COLUMNS if column not in columns]
        self._rewrite(row for row in rows if int(row["step"]) <= step)

    def _rewrite(self, rows: Iterable[Mapping[str, str]]) -> None:
        temporary = self._path.with_name(f".{self._path.name}")
        with temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self._columns)
            writer.writerows([row.get(column, "") for column in self._columns] for row in rows)
        os.replace(temporary, self._path)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def read_rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows of a metrics.csv; a last line cut short by a kill is left out.

    Raises FastrlError if the file is not a metrics.csv.
    """
    try:
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(whole.splitlines())
        columns = list(reader.fieldnames or ())
        rows = [row for row in reader if None not in row.values()]
    except (OSError, UnicodeError, csv.Error) as error:
        raise FastrlError(f"{one_line(error)}; move {path} away to resume this run") from error
    if columns[:1] != ["step"]:
        raise FastrlError(f"{path} has no step column; move it away to resume this run")
    return columns, [row for row in rows if row["step"].isdigit()]
