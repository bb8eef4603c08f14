"""Whether anything grows over many steps: memory and open descriptors of every process.

    python -m perf.soak --steps 10_000_000

Takes batches of an environment that does nothing, so that steps come as fast as they can, and looks
at every process again and again. Growth is the slope of a least-squares line, per million agent
steps, with its standard error; the steps of the warm-up do not count. `own` memory is what a
process has allocated (anonymous memory, shared or not with the process that it was forked from);
`resident` adds shared memory, and code that the kernel may drop and load at any time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import psutil
import tyro

from perf.measure.output import machine, machine_line, table, write_json
from perf.measure.settings import Sampling, describe
from perf.memory import MIB, memory_of

KIB = 2**10
PARTS = ("resident", "own", "descriptors")


@dataclass(frozen=True)
class Settings(Sampling):
    """The sampler to watch."""

    env: str = "fastrl/Null-v0"
    """Gymnasium id."""
    envs_per_worker: int = 64
    """Lanes in each rollout worker."""
    steps: int = 10_000_000
    """Agent steps to watch for."""
    warm_up_steps: int = 2_000_000
    """Agent steps before the first look."""
    looks: int = 100
    """How often to look, at equal distances."""


@dataclass(frozen=True)
class Trend:
    """A quantity of one process at the first and the last look, and its growth."""

    first: float
    last: float
    per_million_steps: float
    standard_error: float

    @staticmethod
    def of(steps: Sequence[float], values: Sequence[float]) -> Trend:
        """The least-squares line through at least three values at increasing `steps`."""
        x, y = np.asarray(steps, float) / 1e6, np.asarray(values, float)
        deviations = x - x.mean()
        slope = float(deviations @ y / (deviations @ deviations))
        residuals = y - y.mean() - slope * deviations
        variance = residuals @ residuals / (len(x) - 2) / (deviations @ deviations)
        return Trend(float(y[0]), float(y[-1]), slope, float(np.sqrt(variance)))


def servers() -> dict[str, int]:
    """Ids of multiprocessing's own processes, by name."""
    found = {}
    for process in psutil.Process().children():
        command = " ".join(process.cmdline())
        for name in ("forkserver", "resource_tracker"):
            if f"multiprocessing.{name}" in command:
                found[name.replace("_", " ")] = process.pid
    return found


def workers(stats: Mapping[str, Any]) -> dict[str, int]:
    """Ids of the learner's process and the workers', by name."""
    named = {"learner": os.getpid()}
    for kind in ("rollout", "policy"):
        named |= {f"{kind} worker {n}": row["pid"] for n, row in enumerate(stats[kind])}
    return named


def look(pid: int) -> tuple[int, ...]:
    """`PARTS` of one process: bytes, bytes and a number."""
    memory = memory_of(pid)
    return memory["Rss"], memory["Anonymous"], len(os.listdir(f"/proc/{pid}/fd"))


def measure(settings: Settings) -> dict[str, Any]:
    """The report: `sps`, `restarts`, and for each process the trends of what `look` sees."""
    from sampler import Sampler

    facts = machine()
    with Sampler(settings.sampler_config()) as sampler:

        def work_until(target: float) -> dict[str, Any]:
            while (stats := sampler.stats())["steps"] < target:
                sampler.get_batch()
            return stats

        first = stats = work_until(settings.warm_up_steps)
        others = servers()
        names = [*workers(stats), *others]
        # Written to beforehand: what is seen must not make this process grow.
        looks = np.full((settings.looks + 1, 1 + len(names) * len(PARTS)), -1.0)
        began = time.monotonic()
        for number, seen in enumerate(looks):
            stats = work_until(first["steps"] + settings.steps * number / settings.looks)
            processes = {**workers(stats), **others}
            seen[0] = stats["steps"]
            seen[1:] = np.concatenate([look(processes[name]) for name in names])
        seconds = time.monotonic() - began
    steps, *columns = looks.T
    trends = [asdict(Trend.of(steps, column)) for column in columns]
    return {
        "steps": int(steps[-1] - steps[0]),
        "seconds": seconds,
        "sps": (steps[-1] - steps[0]) / seconds,
        "restarts": stats["restarts"],
        "processes": {
            name: dict(zip(PARTS, trends[n * len(PARTS) :], strict=False))
            for n, name in enumerate(names)
        },
        "machine": facts,
    }


def rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A line for each process: sizes at the end, and growth per million steps."""
    return [
        (
            name,
            f"{trends['resident']['last'] / MIB:,.1f}",
            _growth(trends["resident"]),
            f"{trends['own']['last'] / MIB:,.1f}",
            _growth(trends["own"]),
            "{first:.0f} to {last:.0f}".format(**trends["descriptors"]),
        )
        for name, trends in result["processes"].items()
    ]


def _growth(trend: Mapping[str, float]) -> str:
    return f"{trend['per_million_steps'] / KIB:+.1f} ± {trend['standard_error'] / KIB:.1f}"


COLUMNS = ("", "resident, MiB", "growth, KiB/M", "own, MiB", "growth, KiB/M", "descriptors")


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    result = measure(settings)
    table(f"{describe(settings)} ({machine_line(result['machine'])})", COLUMNS, rows(result))
    print(
        f"\n{result['steps']:,} steps in {result['seconds']:,.0f} s ({result['sps']:,.0f} a "
        f"second), {result['restarts']} restarts; growth is per million steps."
    )
    write_json(settings.json, result)


if __name__ == "__main__":
    main()
