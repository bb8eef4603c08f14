"""A sampler's memory: bytes per stored step, each process's share, and growth.

    python -m perf.memory --inference model --seconds 60

Proportional set sizes (PSS, /proc/PID/smaps_rollup) count a page that n processes share as 1/n of a
page in each, so their sum is the memory that the run really takes. Growth is the slope of a
least-squares line through the sizes over time, after a warm-up in which the store's pages are
touched for the first time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tyro

from perf.measure.live import LiveSampler
from perf.measure.output import machine, machine_line, table, write_json
from perf.measure.settings import Sampling, describe

MIB = 2**20
PARTS = {"pss": "Pss", "private": "Pss_Anon", "code": "Pss_File", "shared": "Pss_Shmem"}


@dataclass(frozen=True)
class Settings(Sampling):
    """The sampler to weigh."""

    seconds: float = 30.0
    """Seconds to watch for."""
    warm_up: float = 10.0
    """Seconds before the first measurement."""
    every: float = 1.0
    """Seconds between two measurements."""


def memory_of(pid: int) -> dict[str, int]:
    """Bytes of one process by the kernel's names, such as Pss and Anonymous."""
    values = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, kilobytes, *_ = line.replace(":", " ").split()
        values[name] = int(kilobytes) * 1024
    return values


def proportional_set(pid: int) -> dict[str, int]:
    """Bytes of one process: in all, its own anonymous, file-backed and shared memory."""
    values = memory_of(pid)
    return {part: values[name] for part, name in PARTS.items()}


def family(stats: Mapping[str, Any]) -> dict[str, list[int]]:
    """Process ids by kind; `helpers` are the fork server and multiprocessing's own."""
    this = psutil.Process()
    kinds = {
        "learner": [this.pid],
        "rollout": [process["pid"] for process in stats["rollout"]],
        "policy": [process["pid"] for process in stats["policy"]],
    }
    known = {pid for pids in kinds.values() for pid in pids}
    kinds["helpers"] = [p.pid for p in this.children(recursive=True) if p.pid not in known]
    return kinds


def look(kinds: Mapping[str, Sequence[int]]) -> dict[str, dict[str, int]]:
    """Bytes of each kind of process, summed over its processes."""
    result = {}
    for kind, pids in kinds.items():
        sizes = [proportional_set(pid) for pid in pids]
        result[kind] = {part: sum(size[part] for size in sizes) for part in PARTS}
    return result


def slope(times: Sequence[float], sizes: Sequence[float]) -> float:
    """Growth per second: the least-squares line through at least two sizes."""
    return float(np.polyfit(np.asarray(times) - times[0], sizes, 1)[0])


def measure(settings: Settings) -> dict[str, Any]:
    """The report: `bytes_per_step`, and for each kind of process PSS and its growth."""
    from sampler import Sampler

    facts = machine()
    with LiveSampler(Sampler(settings.sampler_config())) as live:
        live.sampler.resume()
        live.work(settings.warm_up)
        kinds = family(live.sampler.stats())
        times, looks = [time.monotonic()], [look(kinds)]
        while times[-1] - times[0] < settings.seconds:
            live.work(settings.every)
            times.append(time.monotonic())
            looks.append(look(kinds))
        bytes_per_step = live.sampler.bytes_per_step
        space = live.sampler.observation_space
    stacked = int(np.prod(space.shape)) * np.dtype(space.dtype).itemsize if space.shape else None
    return {
        "bytes_per_step": bytes_per_step,
        "bytes_of_stacked_observation": stacked,
        "processes": {
            kind: {
                "count": len(pids),
                **{f"{part}_mib": looks[-1][kind][part] / MIB for part in PARTS},
                "growth_mib_per_minute": 60 / MIB * slope(times, [s[kind]["pss"] for s in looks]),
            }
            for kind, pids in kinds.items()
            if pids
        },
        "seconds": times[-1] - times[0],
        "machine": facts,
    }


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    result = measure(settings)
    processes = result["processes"]
    columns = ("pss_mib", "private_mib", "code_mib", "shared_mib")
    rows = [
        (
            kind,
            str(facts["count"]),
            *(f"{facts[name]:,.1f}" for name in columns),
            f"{facts['pss_mib'] / facts['count']:,.1f}",
            f"{facts['growth_mib_per_minute']:+.2f}",
        )
        for kind, facts in processes.items()
    ]
    totals = [f"{sum(facts[name] for facts in processes.values()):,.1f}" for name in columns]
    growth = sum(facts["growth_mib_per_minute"] for facts in processes.values())
    rows.append(("all", "", *totals, "", f"{growth:+.2f}"))
    table(
        f"{describe(settings)} ({machine_line(result['machine'])})",
        ("MiB", "processes", "PSS", "private", "code", "shared", "PSS each", "growth/min"),
        rows,
    )
    stacked = result["bytes_of_stacked_observation"]
    print(f"\nThe store takes {result['bytes_per_step']:,.0f} bytes per step", end="")
    print(f"; one observation as the model sees it is {stacked:,} bytes." if stacked else ".")
    write_json(settings.json, result)


if __name__ == "__main__":
    main()
