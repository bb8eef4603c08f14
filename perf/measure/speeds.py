"""Speeds, and shares of time by stage, between two snapshots of `Sampler.stats()`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from cli.rates import rates as shown_rates

Shares = dict[str, dict[str, float]]
"""Share of its time that each kind of process spends in each stage."""


def rates(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """Speeds between two snapshots of `sampler.stats()`.

    `sps` and `fps` are real steps and frames per second, as a training run shows them,
    `policy_batch_mean` is observations in one inference, `learner_batches` is batches per second.
    """
    shown = shown_rates(before, after)
    batches = _sum(after["policy"], "batches") - _sum(before["policy"], "batches")
    observations = _sum(after["policy"], "observations") - _sum(before["policy"], "observations")
    learned = after["learner"]["batches"] - before["learner"]["batches"]
    return {
        "sps": shown.sps,
        "fps": shown.fps,
        "policy_batch_mean": observations / batches if batches else 0.0,
        "learner_batches": learned / shown.seconds,
    }


def stage_shares(before: Mapping[str, Any], after: Mapping[str, Any]) -> Shares:
    """Share of each kind of process's time in each stage, between two snapshots of the stats.

    Means over the rollout workers and over the policy workers; time outside all stages is `other`,
    so that each kind's shares sum to 1.
    """
    seconds = after["time"] - before["time"]
    return {
        kind: _mean_shares(before[kind], after[kind], seconds)
        for kind in ("rollout", "policy")
        if after[kind]
    }


def mean_shares(shares: Sequence[Shares]) -> Shares:
    """The means of several `stage_shares` of equally long measurements."""
    return {
        kind: {
            stage: statistics.fmean(share[kind][stage] for share in shares)
            for stage in shares[0][kind]
        }
        for kind in shares[0]
    }


def _mean_shares(before: Sequence[Any], after: Sequence[Any], seconds: float) -> dict[str, float]:
    available = seconds * len(after)

    def total(processes: Sequence[Any], stage: str) -> float:
        return sum(process["seconds"][stage] for process in processes)

    stages = after[0]["seconds"]
    return _with_rest({s: (total(after, s) - total(before, s)) / available for s in stages})


def _with_rest(shares: dict[str, float]) -> dict[str, float]:
    # A wait is booked when it ends, so one that began before the window may exceed it a little.
    return {**shares, "other": max(0.0, 1.0 - sum(shares.values()))}


def _sum(processes: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(process[name] for process in processes)
