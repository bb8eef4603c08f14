"""The same work side by side: fastrl and its peers, measured in turn on this machine.

    python -m perf.peers --seconds 8 --rounds 5 --png docs/peers.png
    python -m perf.peers --tasks inference train --tune

Peers run in environments of their own, which are made on first use; a peer that cannot be installed
or run is named with the reason. `--tune` first tries each contestant's settings and takes the
fastest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from perf.measure.output import machine, machine_line, table, write_json
from perf.measure.programs import ProgramError
from perf.measure.rounds import Summary, interleave, ratio
from perf.measure.settings import Measuring
from perf.peers.contestants import Contestant, Lab, Task, tasks
from perf.peers.venvs import HOME, NotInstalled

TaskName = Literal["random", "inference", "train", "train4", "null", "emulated"]
TASKS: tuple[TaskName, ...] = ("random", "inference", "train", "train4", "null", "emulated")


@dataclass(frozen=True)
class Settings(Measuring):
    """What to compare."""

    seconds: float = 8.0
    """Seconds of each measurement."""
    tasks: tuple[TaskName, ...] = TASKS
    """Work to compare at."""
    tune: bool = False
    """Try every contestant's settings first."""
    tune_seconds: float = 5.0
    """Seconds of each try."""
    venv_dir: Path = HOME
    """Folder of the peers' environments."""
    python: str = sys.executable
    """Interpreter that the peers' environments are made with."""
    png: Path | None = None
    """File to draw a bar chart to."""


def fastest(candidates: Sequence[Contestant], seconds: float) -> Contestant:
    """The candidate that is the fastest in one short turn each; raises if none runs."""
    rates: list[tuple[float, Contestant]] = []
    failure: ProgramError | None = None
    for candidate in candidates:
        try:
            with candidate.open() as running:
                rates.append((running.measure(seconds), candidate))
        except ProgramError as error:
            failure = error
    if not rates:
        assert failure is not None
        raise failure
    return max(rates, key=lambda pair: pair[0])[1]


def choose(
    entry: Callable[[Lab], Iterator[Contestant]], lab: Lab, settings: Settings
) -> Contestant:
    """The contestant of an entry with the settings to use."""
    candidates = list(entry(lab))
    if settings.tune and len(candidates) > 1:
        return fastest(candidates, settings.tune_seconds)
    return candidates[0]


def compete(task: Task, lab: Lab, settings: Settings) -> dict[str, Any]:
    """The report of one task: rates and settings of all contestants, and which are missing and
    why."""
    facts = machine()
    missing: list[str] = []
    chosen: list[Contestant] = []
    with ExitStack() as stack:
        measures = {}
        for entry in task.entries:
            try:
                contestant = choose(entry, lab, settings)
                measures[contestant.name] = stack.enter_context(contestant.open()).measure
                chosen.append(contestant)
            except (NotInstalled, ProgramError) as reason:
                missing.append(str(reason))
        rates = interleave(measures, settings.rounds, settings.seconds)
    base = rates[task.baseline]
    return {
        "title": task.title,
        "unit": task.unit,
        "baseline": task.baseline,
        "contestants": {
            c.name: {
                "rate": Summary.of(rates[c.name]).median * task.factor,
                "rounds": [rate * task.factor for rate in rates[c.name]],
                "to_baseline": vars(ratio(rates[c.name], base)),
                "settings": c.settings,
                "command": c.command,
            }
            for c in chosen
        },
        "missing": missing,
        "machine": facts,
    }


def show(report: dict[str, Any]) -> None:
    rows = []
    for name, facts in report["contestants"].items():
        relation = Summary(**facts["to_baseline"])
        rows.append((name, Summary.of(facts["rounds"]).text(), relation.text("{:.3f}")))
    unit, baseline = report["unit"], report["baseline"]
    table(
        f"{report['title']} ({machine_line(report['machine'])})",
        ("", f"{unit}: median (range)", f"of {baseline}"),
        rows,
    )
    for reason in report["missing"]:
        print(f"missing: {reason}")
    for name, facts in report["contestants"].items():
        print(f"  {name}: {facts['command'] or facts['settings']}")


def draw(path: Path, reports: Sequence[dict[str, Any]]) -> None:
    """A panel of bars for each task; lines show the range of the rounds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    heights = [len(report["contestants"]) + 1.2 for report in reports]
    figure, axes = pyplot.subplots(
        len(reports),
        1,
        figsize=(9, 0.36 * sum(heights)),
        height_ratios=heights,
        squeeze=False,
    )
    for report, axis in zip(reports, axes[:, 0], strict=True):
        names = list(report["contestants"])
        for position, (name, facts) in enumerate(report["contestants"].items()):
            rounds = Summary.of(facts["rounds"])
            colour = "tab:green" if name.startswith("fastrl") else "tab:gray"
            error = [[rounds.median - rounds.low], [rounds.high - rounds.median]]
            axis.barh(position, rounds.median, color=colour, xerr=error)
            axis.text(rounds.high, position, f"  {rounds.median:,.0f}", va="center", fontsize=8)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        axis.invert_yaxis()
        axis.margins(x=0.15)
        axis.set_title(f"{report['title']}, {report['unit']}", loc="left", fontsize=9)
        axis.tick_params(axis="x", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    lab = Lab(settings.venv_dir, settings.python)
    known = tasks()
    reports = {}
    for name in settings.tasks:
        reports[name] = compete(known[name], lab, settings)
        show(reports[name])
        write_json(settings.json, {"tasks": reports})
    if settings.png is not None:
        draw(settings.png, list(reports.values()))
