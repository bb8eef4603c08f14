"""Who does what when: a trace, a picture, and how much goes on at the same time.

    python -m perf.timeline --seconds 5 --trace timeline.json --png timeline.png
    python -m perf.timeline --no-learn --env fastrl/Sleep-v0

Runs a training (or the sampler alone) with one group of lanes per worker, then with two. The trace
opens in ui.perfetto.dev or chrome://tracing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from perf.measure.live import LiveSampler, LiveTrainer
from perf.measure.output import machine, machine_line, table, write_json
from perf.measure.settings import describe
from perf.measure.spans import Recording, Span, overlap
from perf.measure.speeds import rates
from perf.train import Settings as TrainSettings
from perf.train import make_trainer
from sampler.shm.counters import Stage

COLOURS = {
    Stage.STEPPING: "tab:green",
    Stage.GATHERING: "tab:cyan",
    Stage.INFERENCE: "tab:blue",
    Stage.WRITING: "tab:purple",
    Stage.LOADING_WEIGHTS: "tab:pink",
    Stage.LEARNING: "tab:orange",
    Stage.WAITING: "0.9",
    Stage.WAITING_FOR_ROWS: "0.7",
}


@dataclass(frozen=True)
class Settings(TrainSettings):
    """What to record."""

    seconds: float = 5.0
    """Seconds to record for each number of groups."""
    learn: bool = True
    """Train; otherwise the sampler works alone."""
    groups_compared: tuple[int, ...] = (1, 2)
    """Numbers of groups to record one after the other."""
    trace: Path = Path("timeline.json")
    """Chrome trace file to write."""
    png: Path = Path("timeline.png")
    """Picture to write."""
    window_ms: float = 250.0
    """Milliseconds that the picture shows, from the middle of the recording."""


@dataclass(frozen=True)
class Take:
    """One recording."""

    groups: int
    seconds: float
    spans: Sequence[Span]
    sps: float

    def report(self) -> dict[str, float]:
        return {"groups": self.groups, "sps": self.sps, **overlap(self.spans)}


def record(settings: Settings) -> Take:
    """Record a sampler, or a training, of these settings."""
    from sampler import Sampler

    with ExitStack() as stack:
        if settings.learn:
            live: Any = stack.enter_context(LiveTrainer(make_trainer(settings)))
            work = live.train
        else:
            live = stack.enter_context(LiveSampler(Sampler(settings.sampler_config())))
            work = live.work
        live.sampler.resume()
        work(live.warm_up)
        before = live.sampler.stats()
        with Recording(live.sampler) as recording:
            work(settings.seconds)
        after = live.sampler.stats()
    sps = rates(before, after)["sps"]
    return Take(settings.groups, recording.seconds, recording.spans, sps)


def row_names(settings: Settings) -> list[str]:
    """Names of the counters' rows."""
    return [
        "learner",
        *(f"rollout {index}" for index in range(settings.workers)),
        *(f"policy {index}" for index in range(settings.policy_workers)),
    ]


def chrome_trace(takes: Sequence[Take], names: Sequence[str]) -> dict[str, Any]:
    """The recordings in Chrome's trace format; each is a process, each row a thread of it."""
    events: list[dict[str, Any]] = []
    for take in takes:
        pid = take.groups
        label = {"name": f"groups: {take.groups}"}
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": label})
        for row, name in enumerate(names):
            thread = {"pid": pid, "tid": row}
            events.append({"ph": "M", "name": "thread_name", **thread, "args": {"name": name}})
        events += [
            {
                "ph": "X",
                "name": span.stage.name.lower(),
                "pid": pid,
                "tid": span.row,
                "ts": span.begin * 1e6,
                "dur": (span.end - span.begin) * 1e6,
            }
            for span in take.spans
        ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def draw(path: Path, takes: Sequence[Take], names: Sequence[str], window: float) -> None:
    """A panel for each recording, a line for each process, `window` seconds long."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    height = 0.9 + 0.35 * len(names)
    figure, axes = pyplot.subplots(
        len(takes), 1, figsize=(12, height * len(takes) + 0.8), squeeze=False
    )
    for take, axis in zip(takes, axes[:, 0], strict=True):
        begin = max(0.0, (take.seconds - window) / 2)
        for span in take.spans:
            if begin <= span.end and span.begin <= begin + window:
                bar = [(1e3 * (span.begin - begin), 1e3 * (span.end - span.begin))]
                colour = COLOURS.get(span.stage, "white")
                axis.broken_barh(bar, (span.row - 0.4, 0.8), facecolors=colour)
        numbers = take.report()
        axis.set_title(
            f"{take.groups} group{'s' if take.groups > 1 else ''}: overlap "
            f"{numbers['overlap']:.2f}, {numbers['inference_while_stepping']:.0%} of inference "
            f"while stepping, {take.sps:,.0f} steps/s",
            loc="left",
        )
        axis.set_yticks(range(len(names)), names)
        axis.set_xlim(0, 1e3 * window)
        axis.set_ylim(len(names) - 0.5, -0.5)
    axes[-1, 0].set_xlabel("milliseconds")
    handles = [Patch(color=c, label=s.name.lower().replace("_", " ")) for s, c in COLOURS.items()]
    figure.legend(handles=handles, loc="lower center", ncol=len(handles), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    facts = machine()
    takes = [record(replace(settings, groups=groups)) for groups in settings.groups_compared]
    names = row_names(settings)
    settings.trace.parent.mkdir(parents=True, exist_ok=True)
    settings.trace.write_text(json.dumps(chrome_trace(takes, names)))
    draw(settings.png, takes, names, settings.window_ms * 1e-3)
    reports = [take.report() for take in takes]
    table(
        f"{describe(settings)} ({machine_line(facts)})",
        ("", *(f"groups: {take.groups}" for take in takes)),
        [
            ("steps/s", *(f"{report['sps']:,.0f}" for report in reports)),
            ("kinds of work at once", *(f"{report['overlap']:.2f}" for report in reports)),
            (
                "inference while stepping",
                *(f"{report['inference_while_stepping']:.0%}" for report in reports),
            ),
            (
                "learning while stepping",
                *(f"{report['learning_while_stepping']:.0%}" for report in reports),
            ),
        ],
    )
    print(f"\nTrace: {settings.trace}\nPicture: {settings.png}")
    write_json(settings.json, {"takes": reports, "machine": facts})


if __name__ == "__main__":
    main()
