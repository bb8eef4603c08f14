"""Speeds and the bottleneck of a run, from two snapshots of `Sampler.stats()`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WAITS = {"step": "environment", "wait": "inference", "token_wait": "learner"}
"""What a rollout worker spends its time on, and which resource that time belongs to: it steps
environments, waits for actions, or waits for rows because the learner has not freed any."""


@dataclass(frozen=True)
class Rates:
    """What happened between two snapshots."""

    seconds: float
    steps: int
    """Agent steps of real transitions."""
    sps: float
    """Agent steps per second."""
    fps: float
    """Emulator frames per second."""
    shares: Mapping[str, float]
    """Share of the rollout workers' time spent on each resource (0 to 1)."""
    learner_wait: float
    """Share of the learner's time spent waiting for batches (0 to 1)."""

    @property
    def bottleneck(self) -> str:
        """environment, inference or learner: where rollout workers spend most of their time."""
        if not any(self.shares.values()):
            return "unknown"
        return max(self.shares, key=lambda name: self.shares[name])


def rates(before: Mapping[str, Any], after: Mapping[str, Any]) -> Rates:
    """The rates between two snapshots of `Sampler.stats()`, `before` taken earlier.

    A worker that was restarted in between counts from zero, so a counter that went back is taken
    as it is.
    """
    seconds = max(after["time"] - before["time"], 1e-9)
    busy = dict.fromkeys(WAITS.values(), 0.0)
    for index, worker in enumerate(after["rollout"]):
        earlier = before["rollout"][index]["seconds"] if index < len(before["rollout"]) else {}
        for stage, resource in WAITS.items():
            now = worker["seconds"].get(stage, 0.0)
            then = earlier.get(stage, 0.0)
            busy[resource] += now - then if now >= then else now
    processes = max(len(after["rollout"]), 1)
    steps = after["steps"] - before["steps"]
    waited = after["learner"]["wait_seconds"] - before["learner"]["wait_seconds"]
    return Rates(
        seconds=seconds,
        steps=steps,
        sps=steps / seconds,
        fps=(after["frames"] - before["frames"]) / seconds,
        shares={name: value / (processes * seconds) for name, value in busy.items()},
        learner_wait=min(max(waited / seconds, 0.0), 1.0),
    )
