"""Measures everything in docs/performance.md on this machine, and fills its tables.

    python -m perf.record
    python -m perf.record --only fps-random scale

Each part runs one profiler, keeps its JSON report under docs/figures/, and puts a table between the
part's two marks in the document. Before each part it waits until nothing else uses the cores.
`--write-only` fills the tables from the reports that are there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import tyro

from perf import replay, soak, stragglers
from perf.measure.common import Summary, machine_line

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = Path("docs/figures")
Row = Sequence[str]


@dataclass(frozen=True)
class Part:
    """One profiler's run, and how its report becomes a table."""

    module: str
    flags: str
    columns: Row
    rows: Callable[[dict[str, Any]], list[Row]]

    def command(self, report: Path) -> list[str]:
        name = ["-m", f"perf.{self.module}", *self.flags.split()]
        return [sys.executable, *name, "--json", str(report)]


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    only: tuple[str, ...] = ()
    """Names of the parts to measure; none: all."""
    write_only: bool = False
    """Measure nothing; fill the tables from the reports that are there."""
    busy: float = 8.0
    """Percent of the cores that others may use before a part begins."""


# --- reports to rows -----------------------------------------------------------------------------


def speed(report: dict[str, Any]) -> list[Row]:
    fps, limit = Summary.of(report["rounds"]["fps"]), Summary.of(report["rounds"]["limit_fps"])
    low, high = report["efficiency_range"]
    rows: list[Row] = [
        ("FPS", fps.text()),
        ("environment alone, FPS", limit.text()),
        ("share of it", f"{report['efficiency']:.2f} ({low:.2f} to {high:.2f})"),
        ("observations in one inference", f"{report['policy_batch_mean']:.1f}"),
    ]
    if "policy_lag_mean" in report:
        rows.append(("policy lag, mean", f"{report['policy_lag_mean']:.2f}"))
    return rows + stages(report)


def stages(report: dict[str, Any]) -> list[Row]:
    return [
        (f"{kind}: time in", ", ".join(f"{stage} {share:.1%}" for stage, share in shares.items()))
        for kind, shares in report["stages"].items()
    ]


def own_cost(report: dict[str, Any]) -> list[Row]:
    low, high = report["share_of_ceiling_range"]
    cost = report["microseconds"]
    return [
        ("steps/s", Summary.of(report["rounds"]["sps"]).text()),
        ("ceiling, steps/s", Summary.of(report["rounds"]["ceiling_sps"]).text()),
        ("share of it", f"{report['share_of_ceiling']:.2f} ({low:.2f} to {high:.2f})"),
        ("CPU us per lane-step", ", ".join(f"{kind} {us:.2f}" for kind, us in cost.items())),
        *stages(report),
    ]


def emulated(report: dict[str, Any]) -> list[Row]:
    low, high = report["share_range"]
    wait_low, wait_high = report["rollout_wait_share_range"]
    waits = f"{report['rollout_wait_share']:.1%} ({wait_low:.1%} to {wait_high:.1%})"
    return [
        ("steps/s", Summary.of(report["rounds"]["sps"]).text()),
        ("sleeping alone, steps/s", Summary.of(report["rounds"]["ideal_sps"]).text()),
        ("share of it", f"{report['share']:.3f} ({low:.3f} to {high:.3f})"),
        ("rollout workers wait", waits),
        *stages(report),
    ]


def overlaps(report: dict[str, Any]) -> list[Row]:
    return [
        (
            str(take["groups"]),
            f"{take['sps']:,.0f}",
            f"{take['overlap']:.2f}",
            f"{take['inference_while_stepping']:.0%}",
            f"{take['learning_while_stepping']:.0%}",
        )
        for take in report["takes"]
    ]


def sizes(report: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [
        (
            f"{kind} ({facts['count']})",
            f"{facts['pss_mib'] / facts['count']:,.0f}",
            f"{facts['private_mib'] / facts['count']:,.0f}",
            f"{facts['growth_mib_per_minute']:+.2f}",
        )
        for kind, facts in report["processes"].items()
    ]
    per_step = f"{report['bytes_per_step']:,.0f} bytes"
    return [*rows, ("store, per step", per_step, "", "")]


def predicted(report: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [
        ("predicted steps/s", f"{report['sps']:,.0f}"),
        ("held back by", report["bottleneck"]),
    ]
    if "error" in report:
        rows.append(("measured steps/s", f"{report['measured_sps']:,.0f}"))
        rows.append(("error", f"{report['error']:+.1%}"))
    else:
        rows.append(("predicted FPS", f"{report['fps']:,.0f}"))
    costs = ", ".join(f"{name} {us:,.1f}" for name, us in report["costs_us"].items())
    assumed = ", inference on the GPU assumed" if report.get("gpu_costs_assumed") else ""
    return [*rows, (f"costs, us{assumed}", costs)]


def comparison(report: dict[str, Any]) -> list[Row]:
    (task,) = report["tasks"].values()
    rows: list[Row] = [
        (
            name,
            f"{Summary.of(facts['rounds']).text()} {task['unit']}",
            Summary(**facts["to_baseline"]).text("{:.3f}"),
            f"`{facts['settings']}`" if facts["settings"] else "",
        )
        for name, facts in task["contestants"].items()
    ]
    return rows + [("missing", reason, "", "") for reason in task["missing"]]


def soaked(report: dict[str, Any]) -> list[Row]:
    total = f"{report['steps']:,} at {report['sps']:,.0f} a second"
    return [*soak.rows(report), ("steps", total, "", "", "", "")]


MEASURED, COMPARED = ("", "median (range)"), ("", "median (range)", "ratio (range)", "settings")
PEERS = "--tune --tune-seconds 3"
LOCAL = "--policy-workers 0 --groups 1"
PARTS = {
    "fps-random": Part("fps", "--seconds 5 --inference random", MEASURED, speed),
    "fps-random-local": Part("fps", f"--seconds 5 --inference random {LOCAL}", MEASURED, speed),
    "fps-model": Part("fps", "--seconds 5 --inference model", MEASURED, speed),
    "fps-model-local": Part(
        "fps", f"--seconds 5 --inference model {LOCAL} --envs-per-worker 32", MEASURED, speed
    ),
    "train": Part("train", "--seconds 10", MEASURED, speed),
    "train4": Part("train", "--seconds 12 --epochs 4 --minibatches 4", MEASURED, speed),
    "train-local": Part("train", f"--seconds 10 {LOCAL}", MEASURED, speed),
    "train4-local": Part(
        "train", f"--seconds 12 --epochs 4 --minibatches 4 {LOCAL}", MEASURED, speed
    ),
    "overhead": Part("overhead", "--seconds 5", MEASURED, own_cost),
    "overhead-frames": Part(
        "overhead", "--seconds 5 --copy-frames --inference model --device cpu", MEASURED, own_cost
    ),
    "overhead-frames-local": Part(
        "overhead",
        f"--seconds 5 --copy-frames --inference model --device cpu --batch 64 {LOCAL}",
        MEASURED,
        own_cost,
    ),
    "scale": Part("scale", "--seconds 5 --workers 32 --step-us 400", MEASURED, emulated),
    "timeline": Part(
        "timeline",
        "--trace runs/timeline.json --png docs/timeline.png",
        (
            "groups",
            "steps/s",
            "kinds of work at once",
            "inference while stepping",
            "learning while stepping",
        ),
        overlaps,
    ),
    "memory": Part(
        "memory",
        "--inference model --seconds 60",
        ("MiB", "PSS each", "private each", "growth per minute, all"),
        sizes,
    ),
    "soak": Part("soak", "--steps 10000000", soak.COLUMNS, soaked),
    "stragglers": Part("stragglers", "--seconds 8 --rounds 3", stragglers.COLUMNS, stragglers.rows),
    "stragglers-tight": Part(
        "stragglers",
        "--seconds 8 --rounds 3 --buffers 2 --batch 32",
        stragglers.COLUMNS,
        stragglers.rows,
    ),
    "replay-copies": Part(
        "replay", "--tasks copies --seconds 1", replay.COPY_COLUMNS, replay.copy_rows
    ),
    "replay-trees": Part(
        "replay", "--tasks trees --seconds 1", replay.TREE_COLUMNS, replay.tree_rows
    ),
    "plan": Part("plan", "--cores 32 --device cuda", MEASURED, predicted),
    "plan-check": Part("plan", "--check --workers 32 --envs-per-worker 4", MEASURED, predicted),
    "peers-random": Part("peers", f"{PEERS} --seconds 5 --tasks random", COMPARED, comparison),
    "peers-inference": Part(
        "peers", f"{PEERS} --seconds 5 --tasks inference", COMPARED, comparison
    ),
    "peers-train": Part("peers", f"{PEERS} --seconds 10 --tasks train", COMPARED, comparison),
    "peers-train4": Part("peers", f"{PEERS} --seconds 10 --tasks train4", COMPARED, comparison),
    "peers-null": Part("peers", f"{PEERS} --seconds 5 --tasks null", COMPARED, comparison),
    "peers-emulated": Part("peers", f"{PEERS} --seconds 5 --tasks emulated", COMPARED, comparison),
}

# --- the document --------------------------------------------------------------------------------


def markdown(columns: Row, rows: Sequence[Row]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
    root, document = DOCS.parent, DOCS / "performance.md"
    for name in settings.only or PARTS:
        report = FIGURES / f"{name}.json"
        if not settings.write_only:
            wait_until_quiet(settings.busy)
            subprocess.run(PARTS[name].command(report), cwd=root, check=True)
        if (root / report).exists():
            text = block(name, json.loads((root / report).read_text()))
            document.write_text(fill(document.read_text(), name, text))
    draw_peers(root / FIGURES)
