"""The framework's own cost, measured with an environment and a model that do nothing.

    python -m perf.overhead --workers 2 --envs-per-worker 64
    python -m perf.overhead --copy-frames --inference model

Microseconds of CPU per lane-step in each process (user and system time, from the kernel's own
accounts), and the rate against `perf.measure.ceiling`, a bare program that only carries frames and
actions, measured in turn. By default the environment writes no frames, and none are gathered, since
random actions need no observations; the ceiling does both. `--copy-frames --inference model` makes
the sampler do the same: each step copies a frame, and a model without layers gets the stacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import psutil
import tyro

from perf.measure.ceiling import ceiling_program
from perf.measure.live import LiveSampler
from perf.measure.output import machine, machine_line, stage_table, table, write_json
from perf.measure.rounds import Summary, interleave, ratio
from perf.measure.settings import Sampling, describe
from perf.measure.speeds import mean_shares
from sampler.envs.frames import FRAME_SHAPE
from sampler.envs.null import NullEnv

if TYPE_CHECKING:
    from sampler import Sampler


@dataclass(frozen=True)
class Settings(Sampling):
    """A sampler of environments that do nothing, with random actions."""

    env: str = "fastrl/Null-v0"
    """Gymnasium id."""
    copy_frames: bool = False
    """Let each step copy a frame into the sampler's memory, as one that renders would."""
    envs_per_worker: int = 64
    """Lanes in each rollout worker."""
    inference: Literal["random", "model"] = "random"
    """Random actions, or a model without layers, which gets observations all the same."""

    def make_sampler(self) -> Sampler:
        from sampler import Sampler

        env = CopyingEnv if self.copy_frames else self.env
        return Sampler(replace(self.sampler_config(), env=env), model=make_null_model)


class CopyingEnv(NullEnv):
    """An environment whose only work is to copy a frame."""

    def __init__(self) -> None:
        super().__init__()
        self._frame = np.random.default_rng(0).integers(255, size=FRAME_SHAPE, dtype=np.uint8)

    def step_into(self, action: Any, out: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        out[:] = self._frame
        return super().step_into(action, out)


def make_null_model(observation_space: Any, action_space: Any) -> Any:
    """A model with the same outputs for every observation: uniform actions, value 0."""
    import torch
    from torch import nn

    actions = int(action_space.n)

    class NullModel(nn.Module):
        def forward(self, obs):
            zeros = obs.new_zeros((len(obs), actions + 1), dtype=torch.float32)
            return zeros[:, :actions], zeros[:, actions]

    return NullModel()


def processor_seconds(stats: Mapping[str, Any]) -> dict[str, float]:
    """User and system seconds so far of the rollout workers, policy workers and this process."""

    def used(pids: list[int]) -> float:
        times = [psutil.Process(pid).cpu_times() for pid in pids if pid]  # 0: no process of its own
        return sum(time.user + time.system for time in times)

    return {
        "rollout": used([process["pid"] for process in stats["rollout"]]),
        "policy": used([process["pid"] for process in stats["policy"]]),
        "learner": used([psutil.Process().pid]),
    }


class CostedSampler(LiveSampler):
    """A live sampler that also records the CPU time of each kind of process per lane-step."""

    def __init__(self, sampler: Any):
        super().__init__(sampler)
        self.costs: list[dict[str, float]] = []

    def measure(self, seconds: float) -> float:
        self.sampler.resume()
        self.work(self.warm_up)
        before = self.sampler.stats()
        spent = processor_seconds(before)
        self.work(seconds)
        after = self.sampler.stats()
        now = processor_seconds(after)
        self.sampler.pause()
        self.note(before, after)
        steps = after["steps"] - before["steps"]
        self.costs.append({kind: 1e6 * (now[kind] - spent[kind]) / steps for kind in now})
        return self.rates[-1]["sps"]


def measure(settings: Settings) -> dict[str, Any]:
    """The report: `sps`, `ceiling_sps`, `share_of_ceiling`, `microseconds` per lane-step."""
    facts = machine()
    with ExitStack() as stack:
        ceiling = stack.enter_context(ceiling_program(settings.workers, settings.envs_per_worker))
        live = CostedSampler(settings.make_sampler())
        stack.enter_context(live)
        measured = interleave(
            {"ceiling": ceiling.measure, "sampler": live.measure}, settings.rounds, settings.seconds
        )
    share = ratio(measured["sampler"], measured["ceiling"])
    cost = {kind: median(costs[kind] for costs in live.costs) for kind in live.costs[0]}
    return {
        "sps": Summary.of(measured["sampler"]).median,
        "ceiling_sps": Summary.of(measured["ceiling"]).median,
        "share_of_ceiling": share.median,
        "share_of_ceiling_range": [share.low, share.high],
        "microseconds": {**cost, "all": sum(cost.values())},
        "stages": mean_shares(live.shares),
        "policy_batch_mean": median(rate["policy_batch_mean"] for rate in live.rates),
        "rounds": {"sps": measured["sampler"], "ceiling_sps": measured["ceiling"]},
        "machine": facts,
    }


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    result = measure(settings)
    low, high = result["share_of_ceiling_range"]
    table(
        f"{describe(settings)}{', frames copied' if settings.copy_frames else ''} "
        f"({machine_line(result['machine'])})",
        ("", "median (range)"),
        [
            ("SPS (agent steps/s)", Summary.of(result["rounds"]["sps"]).text()),
            ("ceiling, steps/s", Summary.of(result["rounds"]["ceiling_sps"]).text()),
            ("share", f"{result['share_of_ceiling']:.2f} ({low:.2f} to {high:.2f})"),
            ("observations in one inference", f"{result['policy_batch_mean']:.1f}"),
        ],
    )
    rows = [(kind, f"{cost:.2f}") for kind, cost in result["microseconds"].items()]
    table("CPU time", ("process", "microseconds per lane-step"), rows)
    stage_table(result["stages"])
    write_json(settings.json, result)


if __name__ == "__main__":
    main()
