"""Many workers on a small machine: environments that sleep stand in for cores that compute.

    python -m perf.scale --workers 32 --step-us 400

`ideal_sps` is what the same number of processes reach by sleeping with no sampler at all, measured
in turn with the sampler; `share` is the sampler's part of it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import tyro

from perf.measure.limit import sleep_program
from perf.measure.live import LiveSampler
from perf.measure.output import machine, machine_line, stage_table, table, write_json
from perf.measure.rounds import Summary, interleave, ratio
from perf.measure.settings import Sampling, describe
from perf.measure.speeds import mean_shares


@dataclass(frozen=True)
class Settings(Sampling):
    """A sampler of environments that sleep, with random actions."""

    env: Literal["fastrl/Sleep-v0"] = "fastrl/Sleep-v0"
    """The environment that sleeps."""
    workers: int = 32
    """Rollout worker processes."""
    envs_per_worker: int = 4
    """Lanes in each rollout worker."""
    step_us: float = 400.0
    """Microseconds a lane sleeps in each step."""


def measure(settings: Settings) -> dict[str, Any]:
    """The report: `sps`, `ideal_sps`, `share`, `rollout_wait_share`, `stages`, ..."""
    from sampler import Sampler

    facts = machine()
    config = settings.sampler_config(env_kwargs={"step_us": settings.step_us})
    with ExitStack() as stack:
        ideal = stack.enter_context(sleep_program(settings.step_us, settings.workers))
        live = stack.enter_context(LiveSampler(Sampler(config)))
        measured = interleave(
            {"ideal": ideal.measure, "sampler": live.measure}, settings.rounds, settings.seconds
        )
    share = ratio(measured["sampler"], measured["ideal"])
    waits = Summary.of([s["rollout"]["wait"] + s["rollout"]["token_wait"] for s in live.shares])
    return {
        "sps": Summary.of(measured["sampler"]).median,
        "ideal_sps": Summary.of(measured["ideal"]).median,
        "share": share.median,
        "share_range": [share.low, share.high],
        "rollout_wait_share": waits.median,
        "rollout_wait_share_range": [waits.low, waits.high],
        "stages": mean_shares(live.shares),
        "policy_batch_mean": median(rate["policy_batch_mean"] for rate in live.rates),
        "rounds": {"sps": measured["sampler"], "ideal_sps": measured["ideal"]},
        "machine": facts,
    }


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    result = measure(settings)
    low, high = result["share_range"]
    wait_low, wait_high = result["rollout_wait_share_range"]
    table(
        f"{describe(settings)}, {settings.step_us:g} us a step ({machine_line(result['machine'])})",
        ("", "median (range)"),
        [
            ("SPS (agent steps/s)", Summary.of(result["rounds"]["sps"]).text()),
            ("sleeping alone, steps/s", Summary.of(result["rounds"]["ideal_sps"]).text()),
            ("share", f"{result['share']:.3f} ({low:.3f} to {high:.3f})"),
            (
                "rollout workers wait",
                f"{result['rollout_wait_share']:.1%} ({wait_low:.1%} to {wait_high:.1%})",
            ),
            ("observations in one inference", f"{result['policy_batch_mean']:.1f}"),
        ],
    )
    stage_table(result["stages"])
    write_json(settings.json, result)


if __name__ == "__main__":
    main()
