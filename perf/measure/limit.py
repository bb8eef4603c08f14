"""The limits that samplers are compared with: environments alone, with no sampler around them.

    python -m perf.measure.limit --env BreakoutNoFrameskip-v4 --seconds 5
    python -m perf.measure.limit --sleep-us 400 --processes 32

As many processes as cores (or `--processes`) run one of
* the bare emulator, for an Atari id: `ALEInterface.act`, four frames a step, no screen read;
* the environment's own `step` with random actions, for any other id;
* `time.sleep`, with `--sleep-us`: what emulated workers reach with no sampler at all.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
import tyro

from perf.measure.output import machine, machine_line, table, write_json
from perf.measure.programs import Program
from perf.measure.reporting.reporter import INTERVAL, Reporter
from perf.measure.rounds import Summary
from perf.measure.settings import Measuring
from sampler.process.resources import available_cores

ACTIONS = 4096  # random actions, drawn beforehand and used over and over


@dataclass(frozen=True)
class Settings(Measuring):
    """What to run without a sampler."""

    env: str = "BreakoutNoFrameskip-v4"
    """Gymnasium id."""
    sleep_us: float = 0.0
    """Sleep this many microseconds a step instead of stepping `env`; 0: step it."""
    processes: int | None = None
    """Processes; None: as many as cores."""


def limit_program(env: str) -> Program:
    """The environment alone in as many processes as cores, as a contestant."""
    return Program([sys.executable, "-m", "fastrl", "perf", "measure.limit", "--env", env])


def sleep_program(step_us: float, processes: int) -> Program:
    """Processes that only sleep, as a contestant."""
    flags = ["--sleep-us", str(step_us), "--processes", str(processes)]
    return Program([sys.executable, "-m", "fastrl", "perf", "measure.limit", *flags])


def frames_per_step(env: str) -> int:
    """Emulator frames that one step of the environment plays."""
    from sampler.envs import make

    made = make(env)
    skip = getattr(made, "frame_skip", 1)
    made.close()
    return int(skip)


def make_stepper(settings: Settings, index: int) -> Callable[[int], Any]:
    """A function that makes step number t, for process `index`."""
    if settings.sleep_us:
        seconds = settings.sleep_us * 1e-6
        return lambda t: time.sleep(seconds)
    from sampler.envs import make
    from sampler.envs.atari import AtariEnv

    env = make(settings.env)
    if isinstance(env, AtariEnv):
        return _bare_emulator(env, index)
    return _environment_alone(env, index)


def _bare_emulator(env: Any, index: int) -> Callable[[int], Any]:
    env.reset(seed=index)
    ale, skip = env.ale, range(env.frame_skip)
    choices = ale.getMinimalActionSet()
    drawn = np.random.default_rng(index).integers(len(choices), size=ACTIONS)
    actions = [choices[i] for i in drawn]

    def step(t: int) -> None:
        action = actions[t % ACTIONS]
        for _ in skip:
            ale.act(action)
        if ale.game_over():
            ale.reset_game()

    return step


def _environment_alone(env: Any, index: int) -> Callable[[int], Any]:
    env.reset(seed=index)
    env.action_space.seed(index)
    actions = [env.action_space.sample() for _ in range(ACTIONS)]

    def step(t: int) -> None:
        _, _, terminated, truncated, _ = env.step(actions[t % ACTIONS])
        if terminated or truncated:
            env.reset()

    return step


def _run(settings: Settings, index: int, counts: Any) -> None:
    step = make_stepper(settings, index)
    parent, t = os.getppid(), 0
    while os.getppid() == parent:
        for _ in range(16):
            step(t)
            t += 1
            counts[index] = t


def run_alone(settings: Settings) -> None:
    """Run the processes for ever, and report their steps."""
    count = settings.processes or available_cores()
    context = multiprocessing.get_context("fork")
    counts = RawArray("q", count)
    for index in range(count):
        context.Process(target=_run, args=(settings, index, counts), daemon=True).start()
    report = Reporter()
    while True:
        time.sleep(INTERVAL)
        report(sum(counts))


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    if "PERF_REPORT_FD" in os.environ:
        return run_alone(settings)
    facts = machine()
    with Program(
        [sys.executable, "-m", "fastrl", "perf", "measure.limit", *sys.argv[1:]]
    ) as program:
        rates = [program.measure(settings.seconds) for _ in range(settings.rounds)]
    sps = Summary.of(rates)
    skip = 1 if settings.sleep_us else frames_per_step(settings.env)
    what = f"sleeping {settings.sleep_us:g} us" if settings.sleep_us else f"{settings.env} alone"
    count = settings.processes or available_cores()
    table(
        f"{what}, {count} processes ({machine_line(facts)})",
        ("", "median (range)"),
        [("steps/s", sps.text()), ("frames/s", f"{sps.median * skip:,.0f}")],
    )
    write_json(
        settings.json,
        {"limit_fps": sps.median * skip, "limit_sps": sps.median, "rates": rates, "machine": facts},
    )


if __name__ == "__main__":
    main()
