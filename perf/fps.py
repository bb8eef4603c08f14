"""How fast the sampler is, against the environment alone, and where its time goes.

    python -m perf.fps --env BreakoutNoFrameskip-v4 --inference model

Sampler and limit (`perf.measure.limit`: the bare emulator in as many processes as cores) are
measured in turn. FPS are emulator frames of real transitions per second, SPS agent steps.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

import tyro

from perf.measure.limit import limit_program
from perf.measure.live import LiveSampler, LiveTrainer
from perf.measure.output import machine, machine_line, stage_table, table, write_json
from perf.measure.rounds import Summary, interleave, ratio
from perf.measure.settings import Sampling, describe
from perf.measure.speeds import mean_shares


@dataclass(frozen=True)
class Settings(Sampling):
    """The sampler alone: nothing learns from its batches."""


def measure(settings: Settings) -> dict[str, Any]:
    """The report: `fps`, `sps`, `limit_fps`, `efficiency`, `stages`, `policy_batch_mean`, ..."""
    from sampler import Sampler

    facts = machine()
    with ExitStack() as stack:
        limit = stack.enter_context(limit_program(settings.env))
        live = stack.enter_context(LiveSampler(Sampler(settings.sampler_config())))
        measured = interleave(
            {"limit": limit.measure, "sampler": live.measure}, settings.rounds, settings.seconds
        )
    return report(measured, live, facts)


def report(
    measured: dict[str, list[float]], live: LiveSampler | LiveTrainer, facts: dict[str, Any]
) -> dict[str, Any]:
    """Medians of the rounds. `efficiency` is the median of each round's own ratio."""
    skip = median(rate["fps"] / rate["sps"] for rate in live.rates)
    sps, limit = Summary.of(measured["sampler"]), Summary.of(measured["limit"])
    efficiency = ratio(measured["sampler"], measured["limit"])
    return {
        "fps": sps.median * skip,
        "sps": sps.median,
        "limit_fps": limit.median * skip,
        "efficiency": efficiency.median,
        "efficiency_range": [efficiency.low, efficiency.high],
        "stages": mean_shares(live.shares),
        "policy_batch_mean": median(rate["policy_batch_mean"] for rate in live.rates),
        "rounds": {
            "fps": [rate * skip for rate in measured["sampler"]],
            "limit_fps": [rate * skip for rate in measured["limit"]],
        },
        "machine": facts,
    }


def show(settings: Sampling, result: dict[str, Any]) -> None:
    fps, limit = Summary.of(result["rounds"]["fps"]), Summary.of(result["rounds"]["limit_fps"])
    low, high = result["efficiency_range"]
    table(
        f"{describe(settings)} ({machine_line(result['machine'])})",
        ("", "median (range)"),
        [
            ("FPS (frames/s)", fps.text()),
            ("SPS (agent steps/s)", f"{result['sps']:,.0f}"),
            ("environment alone, FPS", limit.text()),
            ("efficiency", f"{result['efficiency']:.2f} ({low:.2f} to {high:.2f})"),
            ("observations in one inference", f"{result['policy_batch_mean']:.1f}"),
        ],
    )
    stage_table(result["stages"])


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    result = measure(settings)
    show(settings, result)
    write_json(settings.json, result)


if __name__ == "__main__":
    main()
