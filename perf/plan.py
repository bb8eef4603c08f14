"""How fast the sampler would be on another machine, and what would limit it.

    python -m perf.plan --cores 32 --device cuda --env BreakoutNoFrameskip-v4
    python -m perf.plan --check --workers 32 --envs-per-worker 4

Costs are microseconds of a core, measured here with few and many workers; the prediction for
another machine is computed from them (`predict`). Without a GPU, inference on one is assumed to
cost `--gpu-batch-us` and `--gpu-observation-us`. `--check` predicts what `perf.scale` measures on
this machine, and measures it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import tyro

from perf import scale
from perf.measure.limit import frames_per_step, sleep_program
from perf.measure.live import LiveSampler
from perf.measure.output import machine, machine_line, table, write_json
from perf.measure.settings import Sampling
from perf.overhead import processor_seconds
from sampler.process.resources import available_cores

CROWD = 8  # workers in the larger of the two runs that measure costs
ROUNDS = 100  # of the fixed point in `predict`; it converges in a few


@dataclass(frozen=True)
class Costs:
    """Microseconds of the stages, while nothing waits."""

    step: float
    """Of a core in a rollout worker, per lane-step, everything included."""
    sleep: float
    """That a lane sleeps in a step, without using a core; 0 for environments that compute."""
    batch: float
    """Of a policy worker, per batch, however small."""
    observation: float
    """The additional cost of each observation in it."""

    def serving(self, observations: float) -> float:
        """Time of one batch."""
        return self.batch + self.observation * observations


@dataclass(frozen=True)
class Plan:
    """A machine and the processes on it."""

    cores: int
    workers: int
    groups: int
    lanes_per_group: int
    policy_workers: int

    @property
    def lanes(self) -> int:
        return self.workers * self.groups * self.lanes_per_group


@dataclass(frozen=True)
class Prediction:
    """Steps per second in all, and what each resource alone would allow."""

    bounds: dict[str, float]
    observations: float
    """In one batch."""

    @property
    def bottleneck(self) -> str:
        return min(self.bounds, key=self.bounds.__getitem__)

    @property
    def sps(self) -> float:
        return self.bounds[self.bottleneck]


def predict(costs: Costs, plan: Plan) -> Prediction:
    """The slowest resource decides.

    * stepping: every rollout worker steps all the time.
    * inference: every policy worker serves all the time.
    * cores: all processes share the machine's cores without a loss.
    * answers: a worker waits for a group's actions when stepping its other groups takes less time
      than an answer, which is the rest of the batch in progress (half of one) and the group's own.

    What arrives while a batch is served makes up the next, so batches grow with the rate; where
    inference or the cores hold the rate back, up to all groups but one of each worker.
    """
    n, served = plan.lanes_per_group, plan.lanes / plan.policy_workers
    backlog = served * max(1, plan.groups - 1) / plan.groups
    stepping = n * (costs.step + costs.sleep)
    bounds = {
        "stepping": 1e6 * n * plan.workers / stepping,
        "inference": 1e6 * plan.policy_workers * backlog / costs.serving(backlog),
        "cores": 1e6 * plan.cores / (costs.step + costs.serving(backlog) / backlog),
    }
    observations = float(n)
    for _ in range(ROUNDS):
        cycle = max(plan.groups * stepping, stepping + 1.5 * costs.serving(observations))
        bounds["answers"] = 1e6 * plan.lanes / cycle
        rate = min(bounds.values()) / plan.policy_workers * 1e-6  # per microsecond
        # A batch holds what arrives while one is served: m = rate (batch + observation m).
        idle = 1 - rate * costs.observation
        arriving = rate * costs.batch / idle if idle > 0 else backlog
        observations = min(max(arriving, n), backlog)
    return Prediction(bounds, observations)


@dataclass(frozen=True)
class Settings(Sampling):
    """The machine to plan for, and the sampler on it."""

    seconds: float = 5.0
    """Seconds of each measurement."""
    cores: int = 32
    """Cores of the machine to plan for."""
    workers: int | None = None  # type: ignore[assignment]
    """Rollout workers; None: a core each, after the policy workers."""
    device: str = "cuda"
    """Device of the policy workers there."""
    gpu_batch_us: float = 700.0
    """Assumed microseconds of a GPU inference, however small: some 40 launches, one wait."""
    gpu_observation_us: float = 2.0
    """Assumed microseconds more per observation: its transfer (28 kB) and the convolutions."""
    check: bool = False
    """Predict and measure `perf.scale` on this machine instead."""
    step_us: float = 400.0
    """Microseconds that a step sleeps, for `--check`."""


def measure_costs(settings: Sampling, seconds: float, **env_kwargs: Any) -> Costs:
    """Costs on this machine, with groups as large as asked for.

    Two short runs, of one worker and of many, give small and large batches; they differ in their
    number of groups, which cost a policy worker more than their observations. What a step costs is
    taken from the many, which crowd the machine as the planned ones will.
    """
    alone, crowded = (
        _run(replace(settings, workers=workers), seconds, env_kwargs) for workers in (1, CROWD)
    )
    observation = (crowded["batch_us"] - alone["batch_us"]) / (crowded["batch"] - alone["batch"])
    observation = max(0.0, observation)
    return Costs(
        step=crowded["step_us"],
        sleep=0.0,
        batch=max(0.0, alone["batch_us"] - observation * alone["batch"]),
        observation=observation,
    )


def _run(settings: Sampling, seconds: float, env_kwargs: dict[str, Any]) -> dict[str, float]:
    from sampler import Sampler

    with LiveSampler(Sampler(settings.sampler_config(env_kwargs=env_kwargs))) as live:
        live.sampler.resume()
        live.work(live.warm_up)
        before = live.sampler.stats()
        spent = processor_seconds(before)
        live.work(seconds)
        after = live.sampler.stats()
        now = processor_seconds(after)
        live.note(before, after)
    steps = after["steps"] - before["steps"]
    batches = after["policy"][0]["batches"] - before["policy"][0]["batches"]
    return {
        "step_us": 1e6 * (now["rollout"] - spent["rollout"]) / steps,
        "batch": live.rates[0]["policy_batch_mean"],
        "batch_us": 1e6 * (now["policy"] - spent["policy"]) / batches,
    }


def on_gpu(settings: Settings, gathering: Costs) -> Costs:
    """Costs with inference on an assumed GPU; `gathering` is measured without any model."""
    return replace(
        gathering,
        batch=gathering.batch + settings.gpu_batch_us,
        observation=gathering.observation + settings.gpu_observation_us,
    )


def plan(settings: Settings) -> dict[str, Any]:
    """The report for a machine that is not here."""
    import torch

    facts = machine()
    assumed = settings.device.startswith("cuda") and not torch.cuda.is_available()
    here = replace(settings, device="cpu" if assumed else settings.device)
    if assumed:
        here = replace(here, inference="random")
    costs = measure_costs(here, settings.seconds)
    if assumed:
        costs = on_gpu(settings, costs)
    workers = settings.workers or max(1, settings.cores - settings.policy_workers)
    groups = settings.groups
    target = Plan(
        settings.cores, workers, groups, settings.envs_per_worker // groups, settings.policy_workers
    )
    prediction = predict(costs, target)
    skip = frames_per_step(settings.env)
    return {
        "fps": prediction.sps * skip,
        "sps": prediction.sps,
        "bottleneck": prediction.bottleneck,
        "bounds_sps": prediction.bounds,
        "policy_batch_mean": prediction.observations,
        "plan": vars(target),
        "costs_us": vars(costs),
        "gpu_costs_assumed": assumed,
        "machine": facts,
    }


def check(settings: Settings) -> dict[str, Any]:
    """Predict the emulated workers of `perf.scale` on this machine, and measure them."""
    emulated = scale.Settings(
        seconds=settings.seconds,
        rounds=settings.rounds,
        workers=settings.workers or 32,
        envs_per_worker=settings.envs_per_worker,
        groups=settings.groups,
        policy_workers=settings.policy_workers,
        step_us=settings.step_us,
    )
    costs = measure_costs(emulated, settings.seconds, step_us=settings.step_us)
    with sleep_program(settings.step_us, 1) as sleeper:
        costs = replace(costs, sleep=1e6 / sleeper.measure(settings.seconds))
    target = Plan(
        available_cores(),
        emulated.workers,
        emulated.groups,
        emulated.envs_per_worker // emulated.groups,
        emulated.policy_workers,
    )
    prediction = predict(costs, target)
    measured = scale.measure(emulated)
    return {
        "sps": prediction.sps,
        "bottleneck": prediction.bottleneck,
        "bounds_sps": prediction.bounds,
        "policy_batch_mean": prediction.observations,
        "plan": vars(target),
        "costs_us": vars(costs),
        "measured_sps": measured["sps"],
        "error": prediction.sps / measured["sps"] - 1,
        "machine": measured["machine"],
    }


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    result = check(settings) if settings.check else plan(settings)
    sizes = result["plan"]
    rows = [
        ("SPS (agent steps/s)", f"{result['sps']:,.0f}"),
        ("held back by", result["bottleneck"]),
    ]
    if settings.check:
        rows.append(("measured, SPS", f"{result['measured_sps']:,.0f}"))
        rows.append(("error of the prediction", f"{result['error']:+.1%}"))
    else:
        rows.insert(0, ("FPS (frames/s)", f"{result['fps']:,.0f}"))
    rows += [
        (f"{name} alone would allow", f"{sps:,.0f}") for name, sps in result["bounds_sps"].items()
    ]
    rows.append(("observations in one inference", f"{result['policy_batch_mean']:.0f}"))
    rows += [(f"{name}, us", f"{cost:,.1f}") for name, cost in result["costs_us"].items()]
    lanes = sizes["groups"] * sizes["lanes_per_group"]
    table(
        f"{sizes['cores']} cores, {sizes['workers']} workers x {lanes} environments, "
        f"{sizes['policy_workers']} policy workers "
        f"(costs from {machine_line(result['machine'])})",
        ("", "predicted"),
        rows,
    )
    if result.get("gpu_costs_assumed"):
        print("\nThe cost of inference on the GPU is assumed, not measured: there is none here.")
    write_json(settings.json, result)


if __name__ == "__main__":
    main()
