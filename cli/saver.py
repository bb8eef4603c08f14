"""Saves checkpoints when they are due, and never in the middle of an optimiser step."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sampler.errors import FastrlError

if TYPE_CHECKING:
    from sampler.learner.checkpoint import CheckpointStore
    from sampler.learner.trainer import Progress, Trainer

logger = logging.getLogger("fastrl")

STEP_TIMEOUT = 60.0  # seconds that a step of the optimiser or another save may take


class Saver:
    """A hook of the Trainer that saves checkpoints at intervals of agent steps or seconds.

    Weights that are not finite are never saved; the guard keeps updates that are not finite away
    from them. Any thread may save: weights change only in optimiser steps, and no save takes place
    during one.
    """

    def __init__(
        self,
        store: CheckpointStore,
        trainer: Trainer,
        every: int,
        seconds: float = 0.0,
        on_save: Callable[[], None] = lambda: None,
    ) -> None:
        """every: agent steps, seconds: time between two checkpoints; 0: not by that measure.

        on_save: called after every checkpoint of weights that have learned something.
        """
        self._store = store
        self._trainer = trainer
        self._every = every
        self._seconds = seconds
        self._on_save = on_save
        self._saved = trainer.progress.steps
        self._saved_at = time.monotonic()
        self._weights = threading.RLock()

    def __call__(self, progress: Progress) -> None:
        """Save if that many steps or seconds have passed since the last time."""
        by_steps = self._every and progress.steps // self._every > self._saved // self._every
        by_time = self._seconds and time.monotonic() - self._saved_at >= self._seconds
        if by_steps or by_time:
            self.save()

    def keep_weights_whole(self) -> None:
        """Prevent saves of other threads during optimiser steps from now on."""
        optimiser = self._trainer.learner.optimiser
        optimiser.register_step_pre_hook(lambda *_: self._enter())
        optimiser.register_step_post_hook(lambda *_: self._weights.release())

    def save(self) -> None:
        """Save now, unless nothing was learned since the last time. Raises CheckpointError."""
        self._enter()
        try:
            progress = self._trainer.progress
            if progress.steps > self._saved or not self._store.paths():
                if (name := self._trainer.learner.non_finite_weight()) is not None:
                    logger.warning("%s is not finite: no checkpoint was saved", name)
                    return
                self._store.save(self._trainer.state_dict(), progress.steps)
                self._saved = progress.steps
                self._saved_at = time.monotonic()
                if progress.steps:
                    self._on_save()
        finally:
            self._weights.release()

    def describe(self) -> str:
        """A line that says what is saved."""
        newest = next(iter(self._store.paths()), None)
        if newest is None:
            return "no checkpoint is saved"
        saved = int(newest.stem.rpartition("_")[2])
        if saved == self._trainer.progress.steps:
            return f"saved step {saved:,}"
        return f"the last checkpoint is that of step {saved:,}"

    def _enter(self) -> None:
        if not self._weights.acquire(timeout=STEP_TIMEOUT):
            raise FastrlError(
                f"a step of the optimiser takes more than {STEP_TIMEOUT:g} s; nothing was saved "
                "meanwhile, so go on from the last checkpoint"
            )
