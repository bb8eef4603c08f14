"""The speed of replay compared with a plain copy of the same bytes, and of its sum tree compared
with others.

    python -m perf.replay --seconds 2

Rows are R2D2's for Atari: burn-in and 80 steps, single frames, an LSTM's state. The ring is full
before anything is measured, so pages are touched and rows overwritten, as in a long run. The plain
copy is one memcpy between two arrays of a batch's size. Peers' sum trees are measured where they
can be imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

import numpy as np
import tyro

from perf.measure.output import machine, machine_line, table, write_json
from perf.measure.rounds import Summary, interleave, ratio
from perf.measure.settings import Measuring
from sampler.learner.replay import SequenceReplay, SumTree, TransitionReplay
from sampler.learner.replay.row_storage import Fields, FieldSpecs

STACK = 4


@dataclass(frozen=True)
class Settings(Measuring):
    """What to measure, and the sizes of the rows, the replay and the sum tree."""

    tasks: tuple[Literal["copies", "trees"], ...] = ("copies", "trees")
    """What to measure."""
    seconds: float = 1.0
    """Seconds of each measurement."""
    steps: int = 120
    """Steps in a row: burn-in 40 and 80 to learn."""
    batch: int = 64
    """Rows in a batch."""
    megabytes: int = 1024
    """MiB of rows in each of the two replays."""
    transitions: int = 512
    """Transitions in a batch of n-step replay."""
    leaves: int = 2**20
    """Leaves of the sum trees."""
    indices: int = 512
    """Indices in one call of the sum trees."""


def main(settings: Settings) -> None:
    facts = machine()
    report: dict[str, Any] = {"machine": facts}
    print(machine_line(facts))
    if "copies" in settings.tasks:
        report["copies"] = measure_copies(settings)
        title = f"Copies: {settings.batch} rows of {settings.steps} steps a batch"
        table(f"{title}, or {settings.transitions} transitions", COPY_COLUMNS, copy_rows(report))
    if "trees" in settings.tasks:
        report["sum_trees"] = measure_trees(settings)
        title = f"Sum trees: {settings.indices} indices a call, {settings.leaves:,} leaves"
        table(title, TREE_COLUMNS, tree_rows(report))
    write_json(settings.json, report)


# --- copies --------------------------------------------------------------------------------------


def atari_row(steps: int) -> FieldSpecs:
    """What the sampler stores for R2D2 in one row."""
    return {
        "frames": ((steps + STACK, 84, 84), np.uint8),
        "age": ((steps + 1,), np.int32),
        "actions": ((steps,), np.int64),
        "rewards": ((steps,), np.float32),
        "terminated": ((steps,), np.bool_),
        "truncated": ((steps,), np.bool_),
        "mask": ((steps,), np.bool_),
        "policy_version": ((steps,), np.int64),
        "rnn_state": ((1024,), np.float32),
    }


def measure_copies(settings: Settings) -> dict[str, Any]:
    """Items and bytes per second of inserting and sampling."""
    specs, n = atari_row(settings.steps), settings.batch
    row_bytes = sum(int(np.prod(s)) * np.dtype(d).itemsize for s, d in specs.values())
    capacity = max(settings.megabytes * 2**20 // row_bytes, n)
    generator = np.random.default_rng(0)
    batch: Fields = {name: np.ones((n, *shape), dtype) for name, (shape, dtype) in specs.items()}
    batch["age"] += np.arange(settings.steps + 1, dtype=np.int32)
    batch["terminated"][:] = batch["truncated"][:] = False
    priorities = generator.random(n)

    sequences = SequenceReplay(specs, capacity)
    transitions = TransitionReplay(specs, capacity, n=3)
    for _ in range(-(-capacity // n)):
        sequences.add(batch, priorities)
        transitions.add(batch)
    out = sequences.buffers(n)
    many = transitions.buffers(settings.transitions)
    source, target = np.ones(n * row_bytes, np.uint8), np.ones(n * row_bytes, np.uint8)
    stack_bytes = sum(array.nbytes for array in many.values())
    few, small = np.ones(stack_bytes, np.uint8), np.ones(stack_bytes, np.uint8)

    def sample() -> None:
        _, rows, _ = sequences.sample(n, generator, out)
        sequences.update_priorities(rows, priorities)

    calls: dict[str, tuple[Callable[[], Any], int, int, str]] = {
        "plain copy of a batch of rows": (partial(np.copyto, target, source), n, n * row_bytes, ""),
        "insert rows": (
            partial(sequences.add, batch, priorities),
            n,
            n * row_bytes,
            "plain copy of a batch of rows",
        ),
        "sample rows, set their priorities": (
            sample,
            n,
            n * row_bytes,
            "plain copy of a batch of rows",
        ),
        "plain copy of a batch of transitions": (
            partial(np.copyto, small, few),
            settings.transitions,
            stack_bytes,
            "",
        ),
        "sample 3-step transitions": (
            partial(transitions.sample, settings.transitions, generator, many),
            settings.transitions,
            stack_bytes,
            "plain copy of a batch of transitions",
        ),
    }
    measures = {name: partial(call_rate, call[0]) for name, call in calls.items()}
    rates = interleave(measures, settings.rounds, settings.seconds)

    report: dict[str, dict[str, Summary | None]] = {}
    for name, (_, items, size, plain) in calls.items():
        report[name] = {
            "items_per_second": Summary.of([rate * items for rate in rates[name]]),
            "gib_per_second": Summary.of([rate * size / 2**30 for rate in rates[name]]),
            "of_copy": ratio(rates[name], rates[plain]) if plain else None,
        }
    return as_numbers(report)


COPY_COLUMNS = ("", "items/s", "GiB/s", "of the plain copy")


def copy_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows or transitions a second, their bytes, and both against the plain copy."""
    return [
        (
            name,
            Summary(**facts["items_per_second"]).text(),
            Summary(**facts["gib_per_second"]).text("{:.2f}"),
            Summary(**facts["of_copy"]).text("{:.0%}") if "of_copy" in facts else "",
        )
        for name, facts in report["copies"].items()
    ]


# --- sum trees -----------------------------------------------------------------------------------

Tree = tuple[Callable[[np.ndarray, np.ndarray], Any], Callable[[np.ndarray], Any]]
"""`set(indices, priorities)` and `find(targets)`."""


def fastrl_tree(leaves: int) -> Tree:
    tree = SumTree(leaves)
    return tree.set, tree.find


def torchrl_tree(leaves: int) -> Tree:
    """C++, a loop over the indices inside one call."""
    tree = import_module("torchrl._torchrl").SumSegmentTreeFp64(leaves)
    return tree.__setitem__, tree.scan_lower_bound


def tianshou_tree(leaves: int) -> Tree:
    """Numba."""
    tree = import_module("tianshou.data.utils.segtree").SegmentTree(leaves)
    return tree.__setitem__, tree.get_prefix_sum_idx


TREES = {"fastrl": fastrl_tree, "torchrl": torchrl_tree, "tianshou": tianshou_tree}


def measure_trees(settings: Settings) -> dict[str, Any]:
    """Calls per second of setting and finding, of every tree that can be imported."""
    generator = np.random.default_rng(0)
    indices = generator.integers(settings.leaves, size=(64, settings.indices))
    priorities = generator.random(settings.indices)
    measures, missing = {}, []
    for name, make in TREES.items():
        try:
            put, find = make(settings.leaves)
        except ImportError as error:
            missing.append(f"{name} is not measured: {str(error).splitlines()[0][:90]}")
            continue
        put(np.arange(settings.leaves), np.full(settings.leaves, 0.5))
        strata = np.arange(settings.indices) + generator.random(settings.indices)
        # Below half the sum, so that calls to `set` cannot make them too large.
        targets = strata * (0.25 * settings.leaves / settings.indices)
        measures[f"{name} set"] = partial(call_rate, Cycle(put, indices, priorities))
        measures[f"{name} find"] = partial(call_rate, Cycle(find, targets[None]))
        measures[f"{name} set and find"] = partial(
            call_rate,
            Cycle(lambda i, p, f=find, s=put, t=targets: (s(i, p), f(t)), indices, priorities),
        )
    rates = interleave(measures, settings.rounds, settings.seconds)

    report = {
        name: {
            "microseconds": Summary.of([1e6 / rate for rate in values]),
            "indices_per_second": Summary.of([rate * settings.indices for rate in values]),
            "fastrl": ratio(rates[f"fastrl {name.partition(' ')[2]}"], values),
        }
        for name, values in rates.items()
    }
    return {**as_numbers(report), "not_measured": missing}


TREE_COLUMNS = ("", "us a call", "indices/s", "fastrl's rate to its")


def tree_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Time of a call, indices a second, and how many times as fast ours is; then who is missing."""
    trees = dict(report["sum_trees"])
    missing: list[tuple[str, ...]] = [(x, "", "", "") for x in trees.pop("not_measured")]
    rows: list[tuple[str, ...]] = [
        (
            name,
            Summary(**facts["microseconds"]).text(),
            Summary(**facts["indices_per_second"]).text(),
            Summary(**facts["fastrl"]).text("{:.2f}"),
        )
        for name, facts in trees.items()
    ]
    return rows + missing


class Cycle:
    """Calls a function with the next row of `rows` every time, so that caches do not help too
    much."""

    def __init__(self, function: Callable[..., Any], rows: np.ndarray, *others: Any) -> None:
        self.function, self.rows, self.others, self.turn = function, rows, others, 0

    def __call__(self) -> None:
        self.turn = (self.turn + 1) % len(self.rows)
        self.function(self.rows[self.turn], *self.others)


# --- measuring -----------------------------------------------------------------------------------


def call_rate(function: Callable[[], Any], seconds: float) -> float:
    """Calls per second, over at least `seconds`, after one call that is not counted."""
    function()
    calls, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or calls == 0:
        function()
        calls += 1
    return calls / elapsed if calls else 0.0


def as_numbers(report: Mapping[str, Mapping[str, Summary | None]]) -> dict[str, Any]:
    """The medians, and the ranges they come from, for JSON."""
    return {
        name: {
            key: {"median": s.median, "low": s.low, "high": s.high, "count": s.count}
            for key, s in values.items()
            if s is not None
        }
        for name, values in report.items()
    }


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
