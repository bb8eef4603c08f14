"""How fast a whole training with APPO is, and where its time goes.

    python -m perf.train --env BreakoutNoFrameskip-v4 --batch 32 --rollout 32
    python -m perf.train --epochs 4 --minibatches 4

Training and the limit (`perf.measure.limit`: the bare emulator in as many processes as cores) are
measured in turn. FPS and SPS are those of the steps learned from.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import tyro

from perf.fps import report, show
from perf.measure.limit import limit_program
from perf.measure.live import LiveTrainer
from perf.measure.output import machine, table, write_json
from perf.measure.rounds import interleave
from perf.measure.settings import Sampling

SETTLE = 25.0  # seconds in which the learner finds out how many threads are best


@dataclass(frozen=True)
class Settings(Sampling):
    """The sampler, with the default model, and the learner."""

    inference: Literal["model"] = "model"
    """Training needs a model."""
    epochs: int = 1
    """Passes over a batch."""
    minibatches: int = 1
    """Optimiser steps per pass."""
    learner_device: str = "auto"
    """Device of the learner: auto, cpu, cuda or cuda:N."""
    learner_precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the learner's forward pass."""
    threads: int | None = None
    """Torch threads of the learner; None: as `fastrl-train` has it, what is faster."""


def make_trainer(settings: Settings) -> Any:
    """A running sampler and its APPO learner, as a Trainer without an end."""
    from sampler.process.resources import available_cores, let_threads_sleep, spare_threads

    let_threads_sleep()
    import torch

    from sampler import Sampler
    from sampler.learner.algorithms.appo import APPO, APPOConfig
    from sampler.learner.threads import LearnerThreads
    from sampler.learner.trainer import Trainer
    from sampler.models import make_model

    spare = spare_threads(settings.workers, settings.policy_workers)
    sampler = Sampler(settings.sampler_config(), model=make_model)
    spaces = sampler.observation_space, sampler.action_space
    learner = APPO(
        make_model(*spaces),
        *spaces,
        APPOConfig(epochs=settings.epochs, minibatches=settings.minibatches, reward_clip=1.0),
        device=settings.learner_device,
        precision=settings.learner_precision,
    )
    trainer = Trainer(sampler, learner)
    if settings.threads is None:
        trainer.hooks = (LearnerThreads(spare, available_cores()),)
    else:
        torch.set_num_threads(settings.threads)
    return trainer


def measure(settings: Settings) -> dict[str, Any]:
    """The report of `perf.fps`, of the steps learned from, and `policy_lag_mean`."""
    facts = machine()
    with ExitStack() as stack:
        limit = stack.enter_context(limit_program(settings.env))
        settle = SETTLE if settings.threads is None else 0.0
        live = stack.enter_context(LiveTrainer(make_trainer(settings), settle=settle))
        measured = interleave(
            {"limit": limit.measure, "sampler": live.measure}, settings.rounds, settings.seconds
        )
    return {
        **report(measured, live, facts),
        "policy_lag_mean": median(rate["lag_mean"] for rate in live.rates),
        "learner_batches_per_second": median(rate["learner_batches"] for rate in live.rates),
    }


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    result = measure(settings)
    show(settings, result)
    table(
        f"Learner: {settings.epochs} epochs of {settings.minibatches} minibatches",
        ("", ""),
        [
            ("policy lag, mean (versions)", f"{result['policy_lag_mean']:.2f}"),
            ("batches/s", f"{result['learner_batches_per_second']:.2f}"),
        ],
    )
    write_json(settings.json, result)


if __name__ == "__main__":
    main()
