"""The results of `perf.learning`: kept as CSV and JSON, shown as pictures and as a README.

In the results folder, for each task:
    TASK.csv    the curves: variant, seed, agent steps, seconds, mean return of the games that ended
    TASK.json   what each run came to
    TASK.png    the curves
"""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cli.display import duration
from perf.learning.tasks import TASKS, Task, Variant
from perf.measure.output import markdown

COLUMNS = ("variant", "seed", "step", "seconds", "episodic_return")
POINTS = 60  # of a drawn curve

INTRODUCTION = """\
# Learning curves

Written by `python -m perf.learning`. It runs each command below with its seeds in place of S (Atari
runs are trained by hand and added), plays greedy games with the final weights by `fastrl-eval`, and
stores curves (`TASK.csv`), scores (`TASK.json`) and pictures. Steps are agent steps, returns raw
whole-game scores, times those of training alone. Scores are those of the final weights, not of the
best ones. A bar is met when every seed meets it. Pictures show mean and standard deviation
over the seeds, of games played while training; dots are the scores of the final weights, dashed
lines the bars.
"""


@dataclass(frozen=True)
class Run:
    """One finished run."""

    seed: int
    command: str
    """What was typed, with S for the seed."""
    steps: int
    """Agent steps."""
    seconds: float
    """Of training."""
    score: float
    """Of the final weights: mean return of greedy games, or share of successes."""
    games: int
    """Greedy games behind the score."""
    machine: str
    curve: tuple[tuple[int, float, float], ...] = ()
    """Agent steps, seconds, mean return of the games that had ended since the point before."""


@dataclass
class Results:
    """All runs of a task, by variant and seed."""

    name: str
    runs: dict[str, dict[int, Run]] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path, name: str) -> Results:
        """The runs of a task in the folder; none at first."""
        results = Results(name)
        if not (folder / f"{name}.json").exists():
            return results
        curves: dict[tuple[str, int], list[tuple[int, float, float]]] = {}
        with (folder / f"{name}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                point = int(row["step"]), float(row["seconds"]), float(row["episodic_return"])
                curves.setdefault((row["variant"], int(row["seed"])), []).append(point)
        for variant, runs in json.loads((folder / f"{name}.json").read_text()).items():
            for facts in runs:
                curve = curves.get((variant, facts["seed"]), ())
                results.add(variant, Run(**facts, curve=tuple(curve)))
        return results

    def add(self, variant: str, run: Run) -> None:
        """Add a run, in place of one with the same seed."""
        runs = self.runs.setdefault(variant, {})
        runs[run.seed] = run
        self.runs[variant] = dict(sorted(runs.items()))

    def write(self, folder: Path) -> None:
        """Write curves, scores and picture."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{self.name}.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for variant, runs in self.runs.items():
                for run in runs.values():
                    writer.writerows((variant, run.seed, *point) for point in run.curve)
        facts = {
            variant: [_facts(run) for run in runs.values()] for variant, runs in self.runs.items()
        }
        (folder / f"{self.name}.json").write_text(json.dumps(facts, indent=2) + "\n")
        draw(folder / f"{self.name}.png", TASKS[self.name], self.runs)


def _facts(run: Run) -> dict[str, Any]:
    facts = asdict(run)
    del facts["curve"]
    return facts


# --- pictures ------------------------------------------------------------------------------------


def mean_and_spread(runs: Iterable[Run]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Agent steps [n], mean return [n] and its standard deviation over runs [n].

    Curves have points at different steps: each is averaged within the same intervals, up to the end
    of the shortest run, and interpolated over intervals without a point.
    """
    curves = [np.array(run.curve, float).reshape(-1, 3)[:, [0, 2]] for run in runs if run.curve]
    if not curves:
        return np.empty(0), np.empty(0), np.empty(0)
    edges = np.linspace(0, min(curve[-1, 0] for curve in curves), POINTS + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    returns = np.stack([_averaged(curve, edges, centres) for curve in curves])
    first = max(curve[0, 0] for curve in curves)
    shown = edges[1:] >= first
    spread = returns.std(0, ddof=1) if len(curves) > 1 else np.zeros(len(centres))
    return centres[shown], returns.mean(0)[shown], spread[shown]


def _averaged(curve: np.ndarray, edges: np.ndarray, centres: np.ndarray) -> np.ndarray:
    counts, sums = (
        np.histogram(curve[:, 0], edges, weights=weights)[0]
        for weights in (np.ones(len(curve)), curve[:, 1])
    )
    filled = counts > 0
    return np.interp(centres, centres[filled], sums[filled] / counts[filled])


def draw(path: Path, task: Task, runs: Mapping[str, Mapping[int, Run]]) -> None:
    """The curves of a task: mean over seeds and a band of one standard deviation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import EngFormatter

    figure, axis = pyplot.subplots(figsize=(7, 4))
    for number, name in enumerate(task.variants):
        if name not in runs:
            continue
        colour = f"C{number}"
        steps, mean, spread = mean_and_spread(runs[name].values())
        axis.plot(steps, mean, color=colour, label=name)
        axis.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.2, lw=0)
        if task.success_above is None:  # otherwise the score is not a return
            scores = [(run.steps, run.score) for run in runs[name].values()]
            axis.scatter(*zip(*scores, strict=True), color=colour, s=14, zorder=3)
    if task.reference:
        steps, returns = np.array(task.reference).T
        axis.plot(steps, returns, color="tab:gray", ls=":", label=task.reference_name)
    if task.success_above is None:
        for bar, name in bars(task.variants).items():
            axis.axhline(bar, color="black", ls="--", lw=0.8)
            axis.annotate(name, (0, bar), (4, 3), textcoords="offset points", fontsize=8)
    axis.set_title(task.title, loc="left", fontsize=10)
    axis.set_xlabel("agent steps")
    axis.set_ylabel("episodic return")
    axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)


def bars(variants: Mapping[str, Variant]) -> dict[float, str]:
    """The different bars of a task: where each is, and what is written there."""
    found = {}
    for variant in variants.values():
        if variant.at_least is not None:
            found[variant.at_least] = variant.bar
        if variant.at_most is not None:
            found[variant.at_most] = f"control {variant.bar}"
    return found


# --- the README ----------------------------------------------------------------------------------


def write_readme(folder: Path) -> None:
    """Tables and pictures of everything the folder holds."""
    results = {name: Results.read(folder, name) for name in TASKS}
    held = {name: task_results for name, task_results in results.items() if task_results.runs}
    parts = [INTRODUCTION, summary(held)]
    parts += [section(name, task_results) for name, task_results in held.items()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("\n".join(parts))


def summary(results: Mapping[str, Results]) -> str:
    """The table of all variants, and where they ran."""
    columns = ("task", "bar", "score by seed", "mean ± std", "agent steps", "time", "met")
    rows = [
        row(name, variant, list(task_results.runs[variant].values()))
        for name, task_results in results.items()
        for variant in TASKS[name].variants
        if variant in task_results.runs
    ]
    machines = {
        run.machine
        for task_results in results.values()
        for runs in task_results.runs.values()
        for run in runs.values()
    }
    return f"{markdown(columns, rows)}\n\nMeasured on: {'; '.join(sorted(machines))}.\n"


def row(name: str, variant: str, runs: Sequence[Run]) -> tuple[str, ...]:
    """A row of the table: scores, and means over the seeds."""
    scores = [run.score for run in runs]
    spread = f" ± {number(statistics.stdev(scores))}" if len(scores) > 1 else ""
    return (
        f"[{name}](#{name}): {variant}",
        TASKS[name].variants[variant].bar,
        ", ".join(number(score) for score in scores),
        f"{number(statistics.fmean(scores))}{spread}",
        f"{statistics.fmean(run.steps for run in runs):,.0f}",
        duration(statistics.fmean(run.seconds for run in runs)),
        met(TASKS[name], variant, runs),
    )


def met(task: Task, variant: str, runs: Sequence[Run]) -> str:
    """Whether the bar is met, in words."""
    verdicts = [task.variants[variant].meets(run.score) for run in runs]
    if None in verdicts:
        return "-"
    missing = len(set(task.seeds) - {run.seed for run in runs})
    if missing and all(verdicts):
        return f"{missing} of {len(task.seeds)} seeds to come"
    return "yes" if all(verdicts) else f"no: {sum(map(bool, verdicts))} of {len(runs)}"


def number(value: float) -> str:
    """Three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def section(name: str, results: Results) -> str:
    """A task: what it shows, its commands, its picture."""
    task = TASKS[name]
    held = {variant: results.runs[variant] for variant in task.variants if variant in results.runs}
    runs = [run for of_variant in held.values() for run in of_variant.values()]
    commands = dict.fromkeys(f"    {run.command}" for run in runs)
    about = f"{task.title}. {task.about} Final weights played {runs[0].games} games each."
    if task.reference:
        about += "".join(f" {beside(task, variant, held[variant].values())}" for variant in held)
    picture = f"![{task.title}]({name}.png)"
    return "\n".join([f"## {name}\n", f"{about}\n", *commands, f"\n{picture}\n"])


def beside(task: Task, variant: str, runs: Iterable[Run]) -> str:
    """The last tenth of a variant's curve, and of the reference until there, as a sentence."""
    steps, mean, _ = mean_and_spread(runs)
    if not len(steps):
        return ""
    last = steps >= 0.9 * steps[-1]
    published = np.interp(steps[last], *np.array(task.reference).T)
    return (
        f"In the last tenth of its steps, until {steps[-1]:,.0f}, {variant} returned "
        f"{number(mean[last].mean())} while training, {task.reference_name} "
        f"{number(published.mean())} at the same steps."
    )
