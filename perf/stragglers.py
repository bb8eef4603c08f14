"""What one slow environment costs the others, with and without `straggler_timeout`.

    python -m perf.stragglers --seconds 10

Three samplers of environments that sleep are measured in turn: one whose lanes are all alike; one
in which the first lane takes `slow_factor` times as long for a step and the last one `reset_s`
seconds to reset; and the same with `straggler_timeout`. Lanes of one worker are stepped one after
the other, so the "other lanes" are those of the other workers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import tyro

from perf.measure.live import LiveSampler
from perf.measure.output import machine, machine_line, table, write_json
from perf.measure.rounds import Summary, interleave, ratio
from perf.measure.settings import Sampling, describe
from sampler import Sampler, seeds
from sampler.envs.sleep import SleepEnv
from sampler.errors import BatchTimeout


@dataclass(frozen=True)
class Settings(Sampling):
    """A sampler of environments that sleep, with random actions."""

    env: Literal["fastrl/Sleep-v0"] = "fastrl/Sleep-v0"
    """The environment that sleeps."""
    workers: int = 16
    """Rollout worker processes; at least 3."""
    envs_per_worker: int = 4
    """Lanes in each rollout worker."""
    rollout: int = 16
    """Steps in a row."""
    batch: int = 16
    """Rows in a batch."""
    buffers: int | None = None
    """Batch buffers; None: one row for every lane, and two batches."""
    step_us: float = 5000.0
    """Microseconds a lane sleeps in each step."""
    slow_factor: float = 100.0
    """How many times as long the slow lane's steps take."""
    reset_s: float = 3.0
    """Seconds that the other odd lane takes to reset."""
    length: int = 100
    """Steps in an episode."""
    straggler_timeout: float = 0.5
    """Seconds after a batch's first finished row at which late rows are given up."""


class OneSlowLane(SleepEnv):
    """`SleepEnv`, slow to step in the lane with one seed, slow to reset in that with another."""

    def __init__(
        self,
        step_us: float,
        length: int,
        slow_seed: int,
        slow_factor: float,
        late_seed: int,
        reset_s: float,
    ) -> None:
        super().__init__(step_us, length=length)
        self._slow_seed, self._factor = slow_seed, slow_factor
        self._late_seed, self._late_s = late_seed, reset_s

    def reset_into(self, out: np.ndarray, seed: int | None = None) -> dict[str, Any]:
        if seed == self._late_seed:
            self._reset_s = self._late_s
        info = super().reset_into(out, seed)
        if seed == self._slow_seed:
            self._step_s = self._usual_s * self._factor
        return info


class Variant(LiveSampler):
    """One of the samplers; `takes` has what each of its turns has shown."""

    def __init__(self, sampler: Sampler):
        super().__init__(sampler)
        self.takes: list[dict[str, float]] = []
        self._longest = 0.0

    def measure(self, seconds: float) -> float:
        """Real steps per second of all lanes but those of the first and the last worker."""
        super().measure(seconds)
        return self.takes[-1]["other_sps"]

    def work(self, seconds: float) -> None:
        """Take batches for so long, and note the longest wait for one."""
        self._longest = 0.0
        until = time.monotonic() + seconds
        asked = time.monotonic()
        while (left := until - time.monotonic()) > 0:
            with suppress(BatchTimeout):
                self.sampler.get_batch(timeout=left).release()
                self._longest = max(self._longest, time.monotonic() - asked)
                asked = time.monotonic()
        self._longest = max(self._longest, time.monotonic() - asked)

    def note(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Keep what two snapshots of the statistics say."""
        super().note(before, after)
        steps = [
            new["steps"] - old["steps"]
            for old, new in zip(before["rollout"], after["rollout"], strict=True)
        ]
        self.takes.append(
            {
                "other_sps": sum(steps[1:-1]) / (after["time"] - before["time"]),
                "batches": self.rates[-1]["learner_batches"],
                "longest_wait": self._longest,
                "given_up": after["abandoned_rows"] - before["abandoned_rows"],
            }
        )


def make_sampler(settings: Settings, slow: bool, straggler_timeout: float | None) -> Sampler:
    """One of the samplers to compare; `slow`: with the two odd lanes."""
    config = settings.sampler_config(buffers=settings.buffers, straggler_timeout=straggler_timeout)
    kwargs = {
        "step_us": settings.step_us,
        "length": settings.length,
        "slow_seed": seeds.integer(config.seed, seeds.LANE, 0, 0),
        "slow_factor": settings.slow_factor if slow else 1.0,
        "late_seed": seeds.integer(config.seed, seeds.LANE, config.lanes - 1, 0),
        "reset_s": settings.reset_s if slow else 0.0,
    }
    return Sampler(replace(config, env=OneSlowLane, env_kwargs=kwargs))


def measure(settings: Settings) -> dict[str, Any]:
    """The report: for each variant what `Variant.takes` holds, and shares of the first's steps."""
    if settings.workers < 3:
        raise SystemExit(f"workers={settings.workers} must be at least 3: two have odd lanes")
    facts = machine()
    kinds = {
        "all alike": (False, None),
        "two odd lanes": (True, None),
        "with straggler_timeout": (True, settings.straggler_timeout),
    }
    with ExitStack() as stack:
        live = {
            name: stack.enter_context(Variant(make_sampler(settings, *kind)))
            for name, kind in kinds.items()
        }
        measured = interleave(
            {name: variant.measure for name, variant in live.items()},
            settings.rounds,
            settings.seconds,
        )
    alike = measured["all alike"]
    return {
        "variants": {
            name: {
                "share": asdict(ratio(measured[name], alike)),
                **{key: [take[key] for take in variant.takes] for key in variant.takes[0]},
            }
            for name, variant in live.items()
        },
        "machine": facts,
    }


COLUMNS = ("", "steps/s of other lanes", "share", "batches/s", "longest wait, s", "rows given up")


def rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A line for each variant: medians with their ranges, the longest wait, all rows given up."""
    return [
        (
            name,
            Summary.of(facts["other_sps"]).text(),
            Summary(**facts["share"]).text("{:.3f}"),
            Summary.of(facts["batches"]).text("{:.1f}"),
            f"{max(facts['longest_wait']):.1f}",
            f"{sum(facts['given_up']):.0f}",
        )
        for name, facts in result["variants"].items()
    ]


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    result = measure(settings)
    table(f"{describe(settings)} ({machine_line(result['machine'])})", COLUMNS, rows(result))
    write_json(settings.json, result)


if __name__ == "__main__":
    main()
