"""How a profiler shows its results: the machine, tables and JSON files."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sampler.process.resources import available_cores


def machine() -> dict[str, Any]:
    """The machine on which a figure was measured."""
    name = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return {
        "processor": name,
        "cores": available_cores(),
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


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same kind of table for a document."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
