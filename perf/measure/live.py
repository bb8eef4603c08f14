"""A sampler or a training in this process, measured in turn and paused in between."""

from __future__ import annotations

import time
from contextlib import suppress
from statistics import fmean
from typing import TYPE_CHECKING, Any

from perf.measure.rounds import WARM_UP
from perf.measure.speeds import Shares, rates, stage_shares
from sampler.errors import BatchTimeout

if TYPE_CHECKING:
    from sampler import Sampler
    from sampler.learner.trainer import Progress, Trainer


class LiveSampler:
    """A sampler in this process, whose batches are taken and released at once.

    After each turn, `rates` and `shares` hold the results of `perf.measure.speeds`.
    """

    def __init__(self, sampler: Sampler, warm_up: float = WARM_UP):
        self.sampler, self.warm_up = sampler, warm_up
        self.rates: list[dict[str, float]] = []
        self.shares: list[Shares] = []

    def __enter__(self) -> LiveSampler:
        """Wait until every worker makes steps, then pause it until its first turn."""
        self.sampler.__enter__()
        try:
            while not all(worker["steps"] for worker in self.sampler.stats()["rollout"]):
                self.sampler.get_batch().release()
        except BaseException:
            self.sampler.close()
            raise
        self.sampler.pause()
        return self

    def measure(self, seconds: float) -> float:
        """Real steps per second over `seconds`."""
        self.sampler.resume()
        self.work(self.warm_up)
        before = self.sampler.stats()
        self.work(seconds)
        after = self.sampler.stats()
        self.sampler.pause()
        self.note(before, after)
        return self.rates[-1]["sps"]

    def note(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Keep the speeds and shares between two snapshots of the statistics."""
        self.rates.append(rates(before, after))
        self.shares.append(stage_shares(before, after))

    def work(self, seconds: float) -> None:
        """Take batches for this many seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with suppress(BatchTimeout):
                self.sampler.get_batch(timeout=left).release()

    def __exit__(self, *error: object) -> None:
        self.sampler.close()


class LiveTrainer:
    """A whole training in this process, of sampler and learner. Counts the steps learned from.

    `settle`: seconds of training before the first turn, as LearnerThreads needs for its trial.
    """

    def __init__(self, trainer: Trainer, warm_up: float = WARM_UP, settle: float = 0.0):
        self.trainer, self.warm_up, self.settle = trainer, warm_up, settle
        self.sampler = trainer.sampler
        self.rates: list[dict[str, float]] = []
        self.shares: list[Shares] = []
        self.lags: list[float] = []
        trainer.hooks = (*trainer.hooks, self._note_lag)

    def __enter__(self) -> LiveTrainer:
        """Train on at least one batch, and pause until the first turn."""
        self.sampler.__enter__()
        try:
            self.train(max(self.warm_up, self.settle))
        except BaseException:
            self.sampler.close()
            raise
        self.sampler.pause()
        return self

    def measure(self, seconds: float) -> float:
        """Steps learned from per second, over the updates that end within `seconds` and one."""
        self.sampler.resume()
        self.train(self.warm_up)
        self.lags.clear()
        before = self.sampler.stats()
        progress = self.train(seconds)
        after = self.sampler.stats()
        self.sampler.pause()
        elapsed = progress.run_seconds
        learned = progress.run_steps / elapsed
        publish = after["learner"]["publish_seconds"] - before["learner"]["publish_seconds"]
        self.rates.append(
            {**rates(before, after), "learned_sps": learned, "lag_mean": fmean(self.lags)}
        )
        learner = {
            "wait": progress.learner_wait / elapsed,
            "update": (progress.learner_update - publish) / elapsed,
            "publish": publish / elapsed,
        }
        shares = stage_shares(before, after)
        self.shares.append({**shares, "learner": {**learner, "other": 1 - sum(learner.values())}})
        return learned

    def train(self, seconds: float) -> Progress:
        """Train for this many seconds, and until at least one batch has been learned from."""
        done = self.trainer.progress.batches
        self.trainer.total_seconds = seconds
        while (progress := self.trainer.run()).batches == done:
            pass
        return progress

    def _note_lag(self, progress: Progress) -> None:
        self.lags.append(progress.metrics["perf/policy_lag_mean"])

    def __exit__(self, *error: object) -> None:
        self.sampler.close()
