"""What the profilers share: medians and spread, stage shares, tables and JSON files.

A rate is a number of things per second. Rates are compared within one interleaved run: the
contestants are measured in turn, round after round, and a ratio is the median of the rounds'
ratios, because a machine's speed drifts more between minutes than two programs differ.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Measure = Callable[[float], float]
"""Takes the seconds to measure for, returns a rate."""
Shares = dict[str, dict[str, float]]
"""Share of its time that each kind of process spends in each stage."""


@dataclass(frozen=True)
class Summary:
    """The median of repeated measurements, with the lowest and the highest of them."""

    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> Summary:
        """Raises ValueError for no values."""
        if not values:
            raise ValueError("no measurements to summarise")
        return Summary(statistics.median(values), min(values), max(values), len(values))

    def text(self, pattern: str = "{:,.0f}") -> str:
        """The median and, where there are several measurements, the range."""
        median = pattern.format(self.median)
        if self.count == 1:
            return median
        return f"{median} ({pattern.format(self.low)} to {pattern.format(self.high)})"


def interleave(measures: Mapping[str, Measure], rounds: int, seconds: float):
    """Measure each in turn, `rounds` times, every other round in reverse: {name: [rate, ...]}.

    The reversal takes a steady drift of the machine out of the ratios.
    """
    rates: dict[str, list[float]] = {name: [] for name in measures}
    for turn in range(rounds):
        names = list(measures)
        for name in names if turn % 2 == 0 else reversed(names):
            rates[name].append(measures[name](seconds))
    return rates


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Summary:
    """Pair by pair: the summary of numerator / denominator of the same round."""
    return Summary.of([a / b for a, b in zip(numerators, denominators, strict=True)])


def rates(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """Speeds between two snapshots of `sampler.stats()`.

    `sps` and `fps` are real steps and frames per second, `policy_batch_mean` is observations in
    one inference, `learner_batches` is batches per second.
    """
    seconds = after["time"] - before["time"]
    batches = _sum(after["policy"], "batches") - _sum(before["policy"], "batches")
    observations = _sum(after["policy"], "observations") - _sum(before["policy"], "observations")
    return {
        "sps": (after["steps"] - before["steps"]) / seconds,
        "fps": (after["frames"] - before["frames"]) / seconds,
        "policy_batch_mean": observations / batches if batches else 0.0,
        "learner_batches": (after["learner"]["batches"] - before["learner"]["batches"]) / seconds,
    }


def stage_shares(before: Mapping[str, Any], after: Mapping[str, Any]) -> Shares:
    """Share of each kind of process's time in each stage, between two snapshots of the stats.

    Means over the rollout workers and over the policy workers; what no stage accounts for is
    `other`, so that each kind's shares sum to 1.
    """
    seconds = after["time"] - before["time"]
    return {
        kind: _mean_shares(before[kind], after[kind], seconds)
        for kind in ("rollout", "policy")
        if after[kind]
    }


def _mean_shares(before: Sequence[Any], after: Sequence[Any], seconds: float) -> dict[str, float]:
    available = seconds * len(after)

    def total(processes: Sequence[Any], stage: str) -> float:
        return sum(process["seconds"][stage] for process in processes)

    stages = after[0]["seconds"]
    return _with_rest({s: (total(after, s) - total(before, s)) / available for s in stages})


def _with_rest(shares: dict[str, float]) -> dict[str, float]:
    # A wait is booked when it ends, so one that began before the window may exceed it a little.
    return {**shares, "other": max(0.0, 1.0 - sum(shares.values()))}


def _sum(processes: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(process[name] for process in processes)


def mean_shares(shares: Sequence[Shares]) -> Shares:
    """The means of several `stage_shares` of equally long measurements."""
    return {
        kind: {
            stage: statistics.fmean(share[kind][stage] for share in shares)
            for stage in shares[0][kind]
        }
        for kind in shares[0]
    }


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def machine() -> dict[str, Any]:
    """Where a figure was measured."""
    name = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return {
        "processor": name,
        "cores": cores(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def machine_line(facts: Mapping[str, Any]) -> str:
    return "{processor}, {cores} cores, Python {python}, load before {load_before}".format(**facts)


def command_line() -> str:
    """The command that made this report, to be typed again."""
    spec = sys.modules["__main__"].__spec__  # None for a script
    program = f"-m {spec.name.removesuffix('.__main__')}" if spec else sys.argv[0]
    return " ".join(["python", program, *sys.argv[1:]])


def write_json(path: Path | None, report: Mapping[str, Any]) -> None:
    """Write a report as indented JSON, with the command and the machine; nothing for no path."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"command": command_line(), **report}, indent=2) + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column to the left, numbers to the right."""
    cells = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]

    def line(row: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join([first, *others]).rstrip()

    print(f"\n{title}")
    print(line(cells[0]))
    print("  ".join("-" * width for width in widths))
    for row in cells[1:]:
        print(line(row))


def stage_table(shares: Mapping[str, Mapping[str, float]]) -> None:
    """Print where the time of each kind of process goes."""
    rows = [
        (kind, stage, f"{share:.1%}")
        for kind, stages in shares.items()
        for stage, share in stages.items()
    ]
    table("Where the time goes", ("process", "stage", "share of its time"), rows)
