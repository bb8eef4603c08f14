"""The parts of docs/performance.md: which profiler makes each, with which flags."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf import queues, replay, soak, stragglers
from perf.report.rows import (
    Row,
    comparison,
    emulated,
    overlaps,
    own_cost,
    predicted,
    sizes,
    soaked,
    speed,
)


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
    "queues": Part("queues", "--seconds 1 --rounds 5", queues.COLUMNS, queues.rows),
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
