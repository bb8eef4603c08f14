"""Measures everything in docs/performance.md on this machine, and fills its tables.

    python -m perf.report
    python -m perf.report --only fps-random scale

Run it in the folder that holds docs/. Each part runs one profiler, keeps its JSON report under
docs/figures/, and puts a table between the part's two marks in the document. Before each part it
waits until nothing else uses the cores. `--write-only` fills the tables from the reports that are
there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import tyro

from perf.measure.output import machine_line, markdown
from perf.report.parts import PARTS

DOCS = Path("docs")  # in the current folder
DOCUMENT, FIGURES = DOCS / "performance.md", DOCS / "figures"


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    only: tuple[str, ...] = ()
    """Names of the parts to measure; none: all."""
    write_only: bool = False
    """Measure nothing; fill the tables from the reports that are there."""
    busy: float = 8.0
    """Percent of the cores that others may use before a part begins."""


def block(name: str, report: dict[str, Any]) -> str:
    """What stands between a part's marks: the command, the machine and the table."""
    part = PARTS[name]
    facts = report.get("machine") or next(iter(report["tasks"].values()))["machine"]
    command = " ".join(["python", *part.command(FIGURES / f"{name}.json")[1:]])
    return f"    {command}\n\n{machine_line(facts)}\n\n{markdown(part.columns, part.rows(report))}"


def fill(document: str, name: str, text: str) -> str:
    """The document with `text` between the marks of a part. Raises ValueError without marks."""
    pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(document):
        raise ValueError(f"docs/performance.md has no marks for {name!r}")
    return pattern.sub(lambda marks: f"{marks[1]}{text}\n{marks[2]}", document)


def wait_until_quiet(busy: float) -> None:
    """Wait until the cores have been used less than `busy` percent for five seconds."""
    while (used := psutil.cpu_percent(interval=5.0)) > busy:
        print(f"waiting: others use {used:.0f}% of the cores", file=sys.stderr, flush=True)


def draw_peers(folder: Path) -> None:
    """The bar chart of all comparisons that have been made."""
    from perf.peers.comparison import draw

    names = [name for name in PARTS if name.startswith("peers-")]
    paths = [path for path in (folder / f"{name}.json" for name in names) if path.exists()]
    reports = [task for path in paths for task in json.loads(path.read_text())["tasks"].values()]
    if reports:
        draw(DOCS / "peers.png", reports)


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    if not DOCUMENT.exists():
        sys.exit(f"perf.report: {DOCUMENT} is not in this folder; run it in the repository's root")
    for name in settings.only or PARTS:
        report = FIGURES / f"{name}.json"
        if not settings.write_only:
            wait_until_quiet(settings.busy)
            subprocess.run(PARTS[name].command(report), check=True)
        if report.exists():
            text = block(name, json.loads(report.read_text()))
            DOCUMENT.write_text(fill(DOCUMENT.read_text(), name, text))
    draw_peers(FIGURES)
