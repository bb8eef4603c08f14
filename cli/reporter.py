"""Collects what happened in every batch, and shows and writes it at intervals."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from cli.background_evaluation import Result
from cli.display import PlainDisplay, Status, duration, has_frames
from cli.info_metrics import InfoMetrics
from cli.metrics_writer import MetricsWriter
from cli.rates import Rates, percentages, rates
from cli.recent_games import RecentGames
from sampler.learner.metrics import Alarms
from sampler.learner.trainer import Progress
from sampler.sampler import Sampler

WINDOW = 10.0  # seconds over which the display's speeds are measured
GAMES = 100  # whole games in the display's means

COMMUNICATING = 0.3  # share of the time of choosing actions above which the summary mentions it
LAG_MEAN, LAG_MAX = "perf/policy_lag_mean", "perf/policy_lag_max"


class Reporter:
    """A hook of the Trainer that feeds a display and a metrics writer."""

    def __init__(
        self,
        sampler: Sampler,
        display: PlainDisplay,
        writer: MetricsWriter,
        started: float,
        log_every: float,
        total_seconds: float | None,
        filling: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        """started: time.monotonic() of the command's start; log_every, total_seconds: seconds.

        filling: steps in the replay and those that learning starts with, while it has not started.
        """
        self._sampler = sampler
        self._serial = sampler.config.serial
        self._rates = partial(rates, serial=self._serial, local=not sampler.config.policy_workers)
        self._display = display
        self._writer = writer
        self._started = started
        self._log_every = log_every
        self._total_seconds = total_seconds
        self._filling = filling
        self._pace: tuple[float, int] | None = None  # time and steps when learning had started
        self._alarms = Alarms(sampler.action_space)
        self._games = RecentGames(GAMES, sampler.stats)
        self._updates: dict[str, list[float]] = {}
        self._lag: float | None = None
        self._lag_max: float | None = None
        self._first = self._logged = sampler.stats()
        self._infos = InfoMetrics(self._first)
        self._window = deque([self._first])
        self._shown = started
        self._is_first = True
        self._evaluated: float | None = None

    def __call__(self, progress: Progress) -> None:
        """Record one batch's progress; show and write if it is time."""
        if self._is_first:
            self._begin(progress)
        if self._pace is None and not self._filling():
            stats = self._sampler.stats()
            self._pace = stats["time"], stats["steps"]
        self._games.add(progress.episodes)
        for name, value in progress.metrics.items():
            self._updates.setdefault(name, []).append(value)
        self._lag = progress.metrics.get(LAG_MEAN, self._lag)
        self._lag_max = progress.metrics.get(LAG_MAX, self._lag_max)
        for warning in self._alarms.check(progress.metrics):
            self._display.warning(warning)
        now = time.monotonic()
        if now - self._logged["time"] >= self._log_every:
            self.log(progress)
        if now - self._shown >= self._display.interval:
            self._shown = now
            self._show(progress)

    def _begin(self, progress: Progress) -> None:
        """Called at the first batch; speeds are measured from here on, without the start."""
        self._is_first = False
        self._first = self._logged = self._sampler.stats()
        self._window = deque([self._first])
        self._shown = time.monotonic()
        waited = self._shown - self._started - progress.learner_update
        self._display.message(f"first batch {waited:.1f} s after the start of the command")
        if self._filling():
            self._show(progress)

    def finish(self, progress: Progress) -> None:
        """Write a last row if anything happened since the one before."""
        if self._updates:
            self.log(progress)

    def log(self, progress: Progress) -> None:
        """Write a row: means over everything since the row before."""
        stats = self._sampler.stats()
        speed = self._rates(self._logged, stats)
        metrics = {
            "charts/SPS": speed.sps,
            "perf/fps": speed.fps,
            "perf/learner_wait": speed.learner_wait,
            "perf/communication_share": speed.communication,
            "perf/episodes_missed": stats["episodes_missed"] - self._logged["episodes_missed"],
            **{f"perf/{name}_share": share for name, share in speed.shares.items()},
        }
        games = self._games.since
        for name, value in (("return", games.mean_score), ("length", games.mean_length)):
            if value is not None:
                metrics[f"charts/episodic_{name}"] = value
        observations, batches = (
            sum(p[name] for p in stats["policy"]) - sum(p[name] for p in self._logged["policy"])
            for name in ("observations", "batches")
        )
        if batches > 0:
            metrics["perf/batch_size"] = observations / batches
        for name, values in self._updates.items():
            metrics[name] = max(values) if name.endswith("_max") else mean(values)
        reported, histograms = self._infos.take(stats)
        for warning in self._infos.warnings(stats):
            self._display.warning(warning)
        metrics |= reported
        self._writer.write(progress.steps, progress.seconds, metrics, histograms)
        self._logged = stats
        self._games.restart()
        self._updates = {}

    def evaluation(self, result: Result) -> None:
        """Show and write an evaluation."""
        self._evaluated = result.greedy.mean
        self._display.message(result.describe())
        self._writer.write(result.steps, result.seconds, result.metrics())

    def summary(self, progress: Progress) -> list[str]:
        """The results of the run, as lines."""
        speed = self._rates(self._first, self._sampler.stats())
        shares = ", ".join(f"{name} {n}%" for name, n in percentages(speed.shares).items())
        last, score = self._games.last, self._games.last.mean_score
        games = f"last {last.games} of {self._games.all.games:,} whole games"
        whose = "the time" if self._serial else "the rollout workers' time"
        shown_score = "-" if score is None else f"{score:,.2f} ({games})"
        lag = "-" if self._lag is None else f"{self._lag:.2f} versions (max {self._lag_max:.0f})"
        frames = [f"  FPS            {speed.fps:,.0f} emulator frames per second"]
        return [
            f"trained {progress.steps:,} steps in {duration(progress.seconds)}",
            *(frames if has_frames(speed.fps, speed.sps) else []),
            f"  SPS            {speed.sps:,.0f} agent steps per second",
            f"  mean raw score {shown_score}",
            f"  lag            {lag}",
            f"  bottleneck     {speed.bottleneck} ({shares} of {whose})",
            f"  communication  {speed.communication:.0%} of the time of choosing actions"
            f"{self._advice(speed)}",
        ]

    def _advice(self, speed: Rates) -> str:
        """Advice on how to communicate less, if that is possible and matters."""
        possible = not self._serial and self._sampler.config.policy_workers > 0
        if possible and speed.bottleneck == "inference" and speed.communication > COMMUNICATING:
            return "; less with --policy-workers 0, or with fewer workers of more environments"
        return ""

    def _show(self, progress: Progress) -> None:
        speed = self._recent_speed()
        self._display.update(
            Status(
                steps=progress.steps,
                total_steps=progress.total_steps,
                seconds=progress.seconds,
                seconds_left=self._seconds_left(progress),
                fps=speed.fps,
                sps=speed.sps,
                mean_return=self._games.last.mean_score,
                mean_length=self._games.last.mean_length,
                games=self._games.all.games,
                lag_mean=self._lag,
                lag_max=self._lag_max,
                bottleneck=speed.bottleneck,
                evaluated=self._evaluated,
                filling=self._filling(),
            )
        )

    def _recent_speed(self) -> Rates:
        """Over the last WINDOW seconds, or since the display's last update if that is longer."""
        stats = self._sampler.stats()
        while len(self._window) > 1 and stats["time"] - self._window[1]["time"] >= WINDOW:
            self._window.popleft()
        speed = self._rates(self._window[0], stats)
        self._window.append(stats)
        return speed

    def _seconds_left(self, progress: Progress) -> float | None:
        """Uses the mean speed since learning started: speeds over a few seconds jump with the
        batches, and filling a replay is faster than learning from it."""
        left = []
        stats = self._sampler.stats()
        if self._pace is not None and progress.total_steps is not None:
            seconds, steps = stats["time"] - self._pace[0], stats["steps"] - self._pace[1]
            if steps > 0:
                left.append(max(progress.total_steps - progress.steps, 0) * seconds / steps)
        if self._total_seconds is not None:
            left.append(max(self._total_seconds - progress.run_seconds, 0.0))
        return min(left, default=None)


def mean(values: Sequence[float]) -> Any:
    """The mean, or None without values."""
    return float(np.mean(values)) if values else None
