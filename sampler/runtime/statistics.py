"""`Sampler.stats()`: all counters as one nested dict of cumulative figures."""

from __future__ import annotations

import time
from typing import Any

from sampler.shm.shared import Shared

NANO = 1e-9


def statistics(shared: Shared, restarts: int) -> dict[str, Any]:
    """Counts since the start, and seconds spent; take differences of two calls for rates.

    `games`: how many whole games are over, and the exact sums of their scores, lengths (steps) and
    frames. `games_taken`: the same for the games that `Sampler.episodes()` has listed or left out.
    `episodes_missed`: how many it left out. `epsilon`: its present mean over the lanes.
    """
    counters = shared.counters
    # Each word is read only once, so that totals equal the sums of their parts.
    learner = counters.learner.as_dict()
    rollout = [row.as_dict() for row in counters.rollout]
    policy = [row.as_dict() for row in counters.policy]
    pids = [{"pid": worker["pid"]} for worker in shared.control.workers]
    return {
        "time": time.monotonic(),
        **{
            name: sum(row[name] for row in rollout)
            for name in ("steps", "frames", "episodes", "masked_steps", "lost_steps")
        },
        "games": shared.episodes.total()._asdict(),
        "games_taken": shared.episodes.taken()._asdict(),
        "episodes_missed": shared.episodes.missed,
        "epsilon": float(shared.epsilon.mean()),
        "abandoned_rows": learner["abandoned_rows"],
        "restarts": restarts,
        "version": learner["version"],
        "rollout": [
            pid | _process(row, ("steps", "frames", "episodes"), ("step", "wait", "token_wait"))
            for pid, row in zip(pids, rollout, strict=False)  # rollout workers come first
        ],
        "policy": [
            pid
            | _process(
                row,
                ("batches", "observations", "weight_loads"),
                ("wait", "gather", "inference", "write", "weights"),
            )
            for pid, row in zip(pids[len(rollout) :], policy, strict=True)
        ],
        "learner": {
            "batches": learner["batches"],
            "publishes": learner["publishes"],
            "wait_seconds": learner["wait_ns"] * NANO,
            "publish_seconds": learner["publish_ns"] * NANO,
        },
    }


def _process(
    row: dict[str, int], counts: tuple[str, ...], times: tuple[str, ...]
) -> dict[str, Any]:
    return {
        **{name: row[name] for name in counts},
        "seconds": {name: row[f"{name}_ns"] * NANO for name in times},
    }
