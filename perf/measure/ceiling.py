"""A ceiling for the sampler's own cost: the fastest signalling that Python with numpy can do.

    python -m perf.measure.ceiling --workers 2 --lanes 64

Rollout processes with lanes that do nothing copy one frame per lane-step into shared memory, raise
a flag per group and ring a bell; one policy process gathers the four-frame stacks of every group
that is ready, draws random actions and answers. There are no resets, no back-pressure, no learner,
no statistics and no failures: nothing that a sampler has to do beyond carrying frames and actions.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import select
import sys
import time
from dataclasses import dataclass
from math import prod

import numpy as np
import tyro

from perf.measure.output import machine, machine_line, table, write_json
from perf.measure.programs import Program
from perf.measure.reporting.reporter import INTERVAL, Reporter
from perf.measure.rounds import Summary
from perf.measure.settings import Measuring

GROUPS = 2
STEPS = 32  # in a row
STACK = 4
FRAME = (84, 84)
ACTIONS = 4
LENGTH = 1000  # steps in an episode
READY, BUFFER, STEP = range(3)  # words of a request


@dataclass(frozen=True)
class Settings(Measuring):
    """The size of the ceiling program."""

    workers: int = 2
    """Rollout processes."""
    lanes: int = 64
    """Lanes in each rollout process."""
    step_us: float = 0.0
    """Microseconds that each lane sleeps in a step."""


def ceiling_program(workers: int, lanes: int, step_us: float = 0.0) -> Program:
    """The ceiling as a contestant."""
    sizes = {"workers": workers, "lanes": lanes, "step-us": step_us}
    flags = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    return Program([sys.executable, "-m", "fastrl", "perf", "measure.ceiling", *flags])


class Memory:
    """Arrays and bells that the processes share. Two buffers, with a row for every lane in each."""

    def __init__(self, settings: Settings):
        rows = settings.workers * settings.lanes
        self.frames = shared((2, rows, STACK + STEPS, *FRAME), np.uint8)
        self.actions = shared((2, rows, STEPS), np.int64)
        self.rewards = shared((2, rows, STEPS), np.float32)
        self.ends = shared((2, rows, STEPS, 2), np.bool_)  # terminated, truncated
        self.requests = shared((settings.workers, GROUPS, 3), np.int64)
        self.steps = shared((settings.workers,), np.int64)
        self.policy_bell = os.eventfd(0, os.EFD_NONBLOCK)
        self.worker_bells = [os.eventfd(0) for _ in range(settings.workers)]


def shared(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Zeros in anonymous memory that forked children share."""
    memory = mmap.mmap(-1, max(prod(shape) * np.dtype(dtype).itemsize, 1))
    return np.frombuffer(memory, dtype, prod(shape)).reshape(shape)


class IdleLane:
    """An environment of no work."""

    def __init__(self, step_us: float):
        self.frame = np.random.default_rng(0).integers(255, size=FRAME, dtype=np.uint8)
        self.sleep_s = step_us * 1e-6
        self.t = 0

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return self.frame, 0.0, self.t % LENGTH == 0, False, {}


def roll_out(settings: Settings, memory: Memory, worker: int) -> None:
    """Step the groups in turn for ever."""
    size = settings.lanes // GROUPS
    groups = [[IdleLane(settings.step_us) for _ in range(size)] for _ in range(GROUPS)]
    requests = memory.requests[worker]
    requests[:, READY] = 1
    os.eventfd_write(memory.policy_bell, 1)
    while True:
        for group, lanes in enumerate(groups):
            request = requests[group]
            while request[READY]:
                os.eventfd_read(memory.worker_bells[worker])
            buffer, t = request[BUFFER:].tolist()
            first = worker * settings.lanes + group * size
            rows = slice(first, first + size)
            frames = memory.frames[buffer, rows, t + STACK]
            rewards, ends = [], []
            actions = memory.actions[buffer, rows, t].tolist()
            for i, (lane, action) in enumerate(zip(lanes, actions, strict=True)):
                frames[i], reward, terminated, truncated, _ = lane.step(action)
                rewards.append(reward)
                ends.append((terminated, truncated))
            memory.rewards[buffer, rows, t] = rewards
            memory.ends[buffer, rows, t] = ends
            t += 1
            if t == STEPS:
                memory.frames[1 - buffer, rows, :STACK] = memory.frames[buffer, rows, STEPS:]
                buffer, t = 1 - buffer, 0
            memory.steps[worker] += size
            request[BUFFER:] = buffer, t
            request[READY] = 1
            os.eventfd_write(memory.policy_bell, 1)


def answer(settings: Settings, memory: Memory) -> None:
    """Gather, choose and answer for ever, all ready groups at once."""
    size = settings.lanes // GROUPS
    random = np.random.default_rng(0)
    batch = np.empty((settings.workers * settings.lanes, STACK, *FRAME), np.uint8)
    bell = select.poll()
    bell.register(memory.policy_bell, select.POLLIN)
    while True:
        bell.poll()
        os.eventfd_read(memory.policy_bell)
        ready: list[tuple[int, int, int, slice, int]] = []
        for worker, group in np.argwhere(memory.requests[:, :, READY] == 1).tolist():
            buffer, t = memory.requests[worker, group, BUFFER:].tolist()
            first = worker * settings.lanes + group * size
            rows, start = slice(first, first + size), len(ready) * size
            batch[start : start + size] = memory.frames[buffer, rows, t : t + STACK]
            ready.append((worker, group, buffer, rows, t))
        actions = random.integers(ACTIONS, size=(len(ready), size))
        for chosen, (worker, group, buffer, rows, t) in zip(actions, ready, strict=True):
            memory.actions[buffer, rows, t] = chosen
            memory.requests[worker, group, READY] = 0
            os.eventfd_write(memory.worker_bells[worker], 1)


def run(settings: Settings) -> None:
    """Run all processes for ever, and report the steps."""
    memory = Memory(settings)
    context = multiprocessing.get_context("fork")
    for worker in range(settings.workers):
        context.Process(target=roll_out, args=(settings, memory, worker), daemon=True).start()
    context.Process(target=answer, args=(settings, memory), daemon=True).start()
    report = Reporter()
    while True:
        time.sleep(INTERVAL)
        report(int(memory.steps.sum()))


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    if "PERF_REPORT_FD" in os.environ:
        return run(settings)
    facts = machine()
    with ceiling_program(settings.workers, settings.lanes, settings.step_us) as program:
        rates = [program.measure(settings.seconds) for _ in range(settings.rounds)]
    sps = Summary.of(rates)
    table(
        f"Ceiling: {settings.workers} x {settings.lanes} lanes ({machine_line(facts)})",
        ("", "median (range)"),
        [("steps/s", sps.text())],
    )
    write_json(settings.json, {"sps": sps.median, "rates": rates, "machine": facts})


if __name__ == "__main__":
    main()
