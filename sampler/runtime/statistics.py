"""`Sampler.stats()`: all counters as one nested dict of cumulative figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sampler.config import InfoKey
from sampler.shm.counters import Stage
from sampler.shm.shared import Shared

NANO = 1e-9


def statistics(shared: Shared, restarts: int, info_keys: Sequence[InfoKey] = ()) -> dict[str, Any]:
    """Counts since the start, and seconds spent; take differences of two calls for rates.

    `games`: how many whole games are over, and the exact sums of their scores, lengths (steps) and
    frames. `games_taken`: the same of those that `Sampler.episodes()` has listed or left out.
    `episodes_missed`: how many it left out. `epsilon`: the lanes' mean, at present. `infos`: of
    each of `info_keys`, as "key:statistic", what environments have reported, a dict with the fields
    of `sampler.shm.info_figures.Figures`. Of each worker (`rollout`, `policy`) also `stage`, what
    it is doing now (`sampler.shm.counters.Stage`), and where it has a process of its own the `pid`
    (else 0), whether that is `ready`, and its `restarts`.
    """
    counters = shared.counters
    # Each word is read only once, so that totals equal the sums of their parts.
    learner = counters.learner.as_dict()
    rollout = [row.as_dict() for row in counters.rollout]
    policy = [row.as_dict() for row in counters.policy]
    processes = [worker.as_dict() for worker in shared.control.workers]
    return {
        "time": time.monotonic(),
        **{
            name: sum(row[name] for row in rollout)
            for name in ("steps", "frames", "episodes", "masked_steps", "lost_steps")
        },
        "games": shared.episodes.total()._asdict(),
        "games_taken": shared.episodes.taken()._asdict(),
        "episodes_missed": shared.episodes.missed,
        "infos": {
            f"{'.'.join(key.path)}:{key.statistic}": asdict(figures)
            for key, figures in zip(
                info_keys, shared.infos.read() if shared.infos else (), strict=True
            )
        },
        "epsilon": float(shared.epsilon.mean()),
        "abandoned_rows": learner["abandoned_rows"],
        "restarts": restarts,
        "version": learner["version"],
        "rollout": [
            process | _worker(row, ("steps", "frames", "episodes"), ("step", "wait", "token_wait"))
            for process, row in zip(processes, rollout, strict=False)  # these come first
        ],
        "policy": [
            process
            | _worker(
                row,
                ("batches", "observations", "weight_loads"),
                ("wait", "gather", "inference", "write", "weights"),
            )
            for process, row in zip(processes[len(rollout) :], policy, strict=True)
        ],
        "learner": {
            "stage": Stage(learner["stage"]),
            "batches": learner["batches"],
            "publishes": learner["publishes"],
            "wait_seconds": learner["wait_ns"] * NANO,
            "publish_seconds": learner["publish_ns"] * NANO,
        },
    }


def _worker(row: dict[str, int], counts: tuple[str, ...], times: tuple[str, ...]) -> dict[str, Any]:
    return {
        "stage": Stage(row["stage"]),
        **{name: row[name] for name in counts},
        "seconds": {name: row[f"{name}_ns"] * NANO for name in times},
    }
