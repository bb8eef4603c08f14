"""Speeds and the bottleneck of a run, from two snapshots of `Sampler.stats()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COMMUNICATING = ("gather", "write", "weights")
"""What a policy worker does to get observations, hand over actions and fetch weights."""
ACTING = (*COMMUNICATING, "inference")
"""What a policy worker does when it does not wait."""


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
    """Shares of time (0 to 1) that went to environment, inference and learner, together at most 1.
    They are shares of the rollout workers' time, which they spend stepping environments, waiting
    for actions, or waiting for rows that the learner has not freed; in serial mode, of the one
    process's time."""
    learner_wait: float
    """Share of the learner's time spent waiting for batches (0 to 1)."""
    communication: float
    """Share of the time spent acting, without waiting, that is not inference (0 to 1)."""

    @property
    def bottleneck(self) -> str:
        """What most of the time goes to: environment, inference or learner (or unknown)."""
        if not any(self.shares.values()):
            return "unknown"
        return max(self.shares, key=lambda name: self.shares[name])


def rates(
    before: Mapping[str, Any], after: Mapping[str, Any], serial: bool = False, local: bool = False
) -> Rates:
    """The rates between two snapshots of `Sampler.stats()`, `before` taken earlier.

    serial: the sampler runs in one process, in which the learner's waiting is the others' work.
    local: rollout workers choose their own actions (`policy_workers=0`).
    """
    seconds = max(after["time"] - before["time"], 1e-9)
    steps = after["steps"] - before["steps"]
    waited = after["learner"]["wait_seconds"] - before["learner"]["wait_seconds"]
    learner_wait = min(max(waited / seconds, 0.0), 1.0)

    def spent(kind: str, stages: Sequence[str]) -> float:
        return _spent(before[kind], after[kind], stages) / seconds

    acted = spent("policy", ACTING)
    if serial:
        shares = {
            "environment": spent("rollout", ["step"]),
            "inference": acted,
            "learner": 1.0 - learner_wait,
        }
    else:
        workers = max(len(after["rollout"]), 1)
        acting = acted if local else spent("rollout", ["wait"])
        shares = {
            "environment": spent("rollout", ["step"]) / workers,
            "inference": acting / workers,
            "learner": spent("rollout", ["token_wait"]) / workers,
        }
    # A wait is counted when it ends, so one that began before the first snapshot counts too much.
    whole = max(sum(shares.values()), 1.0)
    shares = {name: share / whole for name, share in shares.items()}
    return Rates(
        seconds=seconds,
        steps=steps,
        sps=steps / seconds,
        fps=(after["frames"] - before["frames"]) / seconds,
        shares=shares,
        learner_wait=learner_wait,
        communication=spent("policy", COMMUNICATING) / acted if acted else 0.0,
    )


def percentages(shares: Mapping[str, float]) -> dict[str, int]:
    """`shares` (0 to 1, together at most 1) as whole numbers that add up to 100.

    The rest up to 100, if it is at least 1, is called other.
    """
    exact = {name: 100 * share for name, share in shares.items()}
    exact["other"] = 100 - sum(exact.values())
    rounded = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: rounded[name] - exact[name])
    for name in by_remainder[: 100 - sum(rounded.values())]:
        rounded[name] += 1
    return {name: value for name, value in rounded.items() if name != "other" or value}


def _spent(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], stages: Sequence[str]
) -> float:
    """Seconds that processes have spent in some stages, all together."""
    total = 0.0
    for then, now in zip(before, after, strict=True):
        for stage in stages:
            total += now["seconds"].get(stage, 0.0) - then["seconds"].get(stage, 0.0)
    return total
