"""Shows that the learners learn: trains every task with its command, and writes docs/results/.

    python -m perf.learning                                     # all but Atari, three seeds each
    python -m perf.learning --only cartpole bitflip:hindsight --seeds 0
    python -m perf.learning --from-run pong:appo runs/PongNoFrameskip-v4__appo__0__...

For each run: `fastrl-train`, then `fastrl-eval` for the final weights. Curves go to `TASK.csv`,
scores to `TASK.json`, both into `TASK.png` and README.md; the results of other runs are kept. A run
made by hand is added with --from-run. `--write-only` draws the stored results again.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from cli.metrics_writer import read_rows
from cli.run_folder import find_run, read_config
from perf.learning.results import Results, Run, write_readme
from perf.learning.tasks import TASKS, choose
from perf.measure.output import machine
from sampler.errors import FastrlError


@dataclass(frozen=True)
class Settings:
    """What to train, and where the results go."""

    only: tuple[str, ...] = ()
    """Tasks, or variants as TASK:VARIANT; none: all that are not trained by hand."""
    seeds: tuple[int, ...] = ()
    """Seeds; none: those of the task."""
    from_run: tuple[str, ...] = ()
    """TASK:VARIANT and run folder, in turns: finished runs to bring in, in place of training."""
    results: Path = Path("docs/results")
    """Folder for curves, scores and pictures."""
    run_dir: str = "runs"
    """Folder that holds the run folders."""
    write_only: bool = False
    """Train nothing; draw pictures and README anew."""


class CommandFailed(Exception):
    """A command ended with an error, which it has printed."""


def command(module: str, arguments: Sequence[str]) -> str:
    """Run one of our commands, showing its output; returns the output. Raises CommandFailed."""
    print(f"fastrl-{module}", *arguments, flush=True)
    lines = []
    with subprocess.Popen(
        [sys.executable, "-m", "fastrl", module, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"    {line}", end="", flush=True)
            lines.append(line)
    if process.returncode:
        raise CommandFailed(f"fastrl-{module} {' '.join(arguments)}: exit {process.returncode}")
    return "".join(lines)


def train(flags: str, seed: int, run_dir: str) -> Path:
    """Train; returns the run folder. Raises CommandFailed."""
    elsewhere = [] if run_dir == Settings.run_dir else ["--run-dir", run_dir]
    printed = command("train", [*flags.split(), "--seed", str(seed), *elsewhere])
    match = re.search(r"^writing to (.+)$", printed, re.MULTILINE)
    if match is None:
        raise CommandFailed(f"fastrl-train {flags}: named no run folder")
    return Path(match[1])


def play(folder: Path, games: int) -> list[float]:
    """Raw scores of the final weights' greedy games. Raises CommandFailed."""
    lanes = min(games, 10)
    printed = command("eval", [str(folder), "--episodes", str(games), "--lanes", str(lanes)])
    match = re.search(r"^scores +(.+)$", printed, re.MULTILINE)
    if match is None:
        raise CommandFailed(f"fastrl-eval {folder}: printed no scores")
    return [float(score) for score in match[1].split()]


def read_run(folder: Path, scores: Sequence[float], success_above: float | None = None) -> Run:
    """The result of a run folder and the scores of its final weights.

    Raises ConfigError or FastrlError if it is not a run folder.
    """
    _, rows = read_rows(folder / "metrics.csv")
    if not rows:
        raise FastrlError(f"{folder / 'metrics.csv'} has no rows: nothing was trained")
    seed = read_config(folder)["training"]["seed"]
    successes = [score if success_above is None else score > success_above for score in scores]
    return Run(
        seed=seed,
        command=_command_of(folder),
        steps=max(int(row["step"]) for row in rows),
        seconds=max(float(row["seconds"]) for row in rows),
        score=sum(successes) / len(successes),
        games=len(scores),
        machine="{processor}, {cores} cores".format(**machine()),
        curve=tuple(
            (int(row["step"]), float(row["seconds"]), float(row["charts/episodic_return"]))
            for row in rows
            if row["charts/episodic_return"]
        ),
    )


def _command_of(folder: Path) -> str:
    """The command that started a run, its seed written as S, without its folder."""
    first = (folder / "command.txt").read_text().splitlines()[0]
    _, _, typed = first.partition("  ")  # the time comes before it
    return re.sub(r"--seed[ =]\d+", "--seed S", re.sub(r" --run-dir[ =]\S+", "", typed))


def record(name: str, variant: str, folder: Path, results: Path) -> None:
    """Play a finished run's final weights, and add it to the results of its task."""
    task = TASKS[name]
    run = read_run(folder, play(folder, task.games), task.success_above)
    kept = Results.read(results, name)
    kept.add(variant, run)
    kept.write(results)


def train_all(settings: Settings) -> list[str]:
    """Train, play and record the chosen variants; returns a line for each failure."""
    failures = []
    for name, variant in choose(settings.only):
        task = TASKS[name]
        for seed in settings.seeds or task.seeds:
            try:
                folder = train(task.variants[variant].flags, seed, settings.run_dir)
                record(name, variant, folder, settings.results)
            except CommandFailed as failure:
                failures.append(str(failure))
            write_readme(settings.results)
    return failures


def bring_in(settings: Settings) -> None:
    """Record finished runs. Raises ValueError, or what `record` raises."""
    if len(settings.from_run) % 2:
        raise ValueError("--from-run takes pairs: TASK:VARIANT FOLDER")
    names, folders = settings.from_run[::2], settings.from_run[1::2]
    for name, folder in zip(names, folders, strict=True):
        chosen = choose((name,))
        if len(chosen) > 1:
            variants = ", ".join(f"{task}:{variant}" for task, variant in chosen)
            raise ValueError(f"--from-run {name}: which variant? {variants}")
        record(*chosen[0], find_run(folder, settings.run_dir), settings.results)


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    failures: list[str] = []
    try:
        if settings.from_run:
            bring_in(settings)
        elif not settings.write_only:
            failures = train_all(settings)
        write_readme(settings.results)
    except (ValueError, OSError, CommandFailed, FastrlError) as error:
        failures.append(str(error))
    for failure in failures:
        print(f"perf.learning: {failure}", file=sys.stderr)
    sys.exit(bool(failures))
