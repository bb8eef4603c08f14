"""The training loop over a sampler and a learner: counters, limits and hooks. It prints nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from sampler.errors import BatchTimeout, ConfigError, StateError
from sampler.learner.base import LEARNER_STATE, Explores, Learner, Replays

if TYPE_CHECKING:
    from sampler.sampler import Sampler
    from sampler.shm.mailbox import Episode

_POLL = 0.25  # seconds after which a wait for a batch checks `stop` again


@dataclass(frozen=True)
class Progress:
    """Where a run is; a new one is handed to every hook after each batch."""

    steps: int = 0
    """Agent steps learned from, earlier runs included."""
    frames: int = 0
    """Emulator frames of those steps."""
    batches: int = 0
    """Batches learned from, earlier runs included."""
    updates: int = 0
    """Optimiser steps, earlier runs included."""
    total_steps: int | None = None
    """Steps at which the run ends; None: at no number of steps."""
    seconds: float = 0.0
    """Wall time of training, from the first batch on, earlier runs included."""
    run_seconds: float = 0.0
    """Wall time since this run's first batch."""
    run_steps: int = 0
    """Agent steps learned from since this run began."""
    learner_wait: float = 0.0
    """Seconds that the learner has waited for batches since this run's first one."""
    learner_update: float = 0.0
    """Seconds that the learner has spent in updates, publishing included, since this run began."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the last update."""
    episodes: Sequence[Episode] = ()
    """Whole games that ended since the previous batch."""

    @property
    def finished(self) -> bool:
        """Whether `total_steps` are done."""
        return self.total_steps is not None and self.steps >= self.total_steps


Hook = Callable[[Progress], None]
STATE = (
    *(f"learner.{name}" for name in LEARNER_STATE),
    "steps",
    "frames",
    "batches",
    "seconds",
)
"""Keys of every trainer's state, as `fields` of a checkpoint."""


class Trainer:
    """Feeds a learner with a sampler's batches until steps or time are used up or `stop` is set.

        trainer = Trainer(sampler, learner, total_steps=1_000_000, hooks=[log, save])
        progress = trainer.run()

    Hooks are called in order after every batch; an exception in one ends the run. `stop` may be set
    from a signal handler or another thread: the update in progress is finished, and a wait for a
    batch is left within a quarter of a second.
    """

    def __init__(
        self,
        sampler: Sampler,
        learner: Learner,
        total_steps: int | None = None,
        total_seconds: float | None = None,
        hooks: Sequence[Hook] = (),
        stop: threading.Event | None = None,
    ) -> None:
        """total_seconds: wall time of this run, from its first batch on.

        Raises ConfigError for an unsuitable sampler, or if the machine lacks memory for the
        learner.
        """
        for name, limit in (("total_steps", total_steps), ("total_seconds", total_seconds)):
            if limit is not None and not limit > 0:
                raise ConfigError(f"{name}={limit} must be greater than 0")
        learner.check_sampler(sampler.config)
        if isinstance(learner, Replays):
            learner.prepare(sampler)
        self.sampler = sampler
        self.learner = learner
        self.total_steps = total_steps
        self.total_seconds = total_seconds
        self.hooks = tuple(hooks)
        self.stop = stop or threading.Event()
        self.progress = Progress(total_steps=total_steps)
        self._frame_skip = 0
        self._published = False  # whether the sampler already has the learner's weights

    def run(self) -> Progress:
        """Train to the end; returns the last progress record. Hooks may take `state_dict()`."""
        sampler, learner = self.sampler, self.learner
        begin = self.progress
        start: float | None = None  # when the first batch had come
        wait = update = 0.0
        steps, frames, batches = begin.steps, begin.frames, begin.batches
        if begin.batches and not self._published:
            self.learner.publish(self._publish)  # its weights may be resumed; the sampler's are new
        while not self._over(start):
            learner.set_progress(steps, self.total_steps)
            explored = self._explore(steps)
            asked = time.monotonic()
            batch = self._next_batch(start)
            got = time.monotonic()
            if batch is None:
                continue
            if start is None:
                start = asked = got
            wait += got - asked
            try:
                new = int(batch.mask[:, sampler.config.overlap :].sum())
                metrics = learner.update(batch, self._publish) | explored
            finally:
                batch.release()
            now = time.monotonic()
            update += now - got
            steps += new
            frames += new * self._frames_per_step()
            batches += 1
            self.progress = Progress(
                steps=steps,
                frames=frames,
                batches=batches,
                updates=learner.updates,
                total_steps=self.total_steps,
                seconds=begin.seconds + now - start,
                run_seconds=now - start,
                run_steps=steps - begin.steps,
                learner_wait=wait,
                learner_update=update,
                metrics=metrics,
                episodes=sampler.episodes(),
            )
            for hook in self.hooks:
                hook(self.progress)
        return self.progress

    def _explore(self, steps: int) -> dict[str, float]:
        """Set the sampler's exploration to the learner's after `steps`; returns its mean."""
        if not isinstance(self.learner, Explores):
            return {}
        epsilon = self.learner.exploration(self.sampler.config.lanes, steps)
        self.sampler.set_epsilon(epsilon)
        return {"charts/epsilon": float(epsilon.mean())}

    def _over(self, start: float | None) -> bool:
        limit = inf if self.total_seconds is None or start is None else start + self.total_seconds
        return time.monotonic() >= limit or self.stop.is_set() or self.progress.finished

    def _next_batch(self, start: float | None) -> Any:
        """The next batch, or None when the run is to end while waiting for it."""
        while not self._over(start):
            try:
                return self.sampler.get_batch(timeout=_POLL)
            except BatchTimeout:
                continue
        return None

    def _frames_per_step(self) -> int:
        """Emulator frames in a step, from the sampler's own counts."""
        if not self._frame_skip:
            stats = self.sampler.stats()
            self._frame_skip = round(stats["frames"] / stats["steps"])
        return self._frame_skip

    def _publish(self) -> int:
        return self.sampler.publish(self.learner.model)

    def state_dict(self) -> dict[str, Any]:
        """Learner and counters, as plain tensors, numbers and strings: what a checkpoint holds.

        In serial mode also the sampler, unless a step of its environments has failed.
        """
        done = self.progress
        state = {
            "learner": self.learner.state_dict(),
            "steps": done.steps,
            "frames": done.frames,
            "batches": done.batches,
            "seconds": done.seconds,
        }
        if self.sampler.config.serial:
            with suppress(StateError):  # a step of its environments has failed
                state["sampler"] = self.sampler.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the counters and the learner of `state_dict()`.

        If it contains a serial sampler, that continues, too: training then equals, bit for bit, one
        that was never interrupted. Raises StateError if that sampler's state does not fit; leave it
        out to start the environments anew.
        """
        exact = "sampler" in state and self.sampler.config.serial
        if exact:
            self.sampler.load_state_dict(state["sampler"])
        # After the sampler, whose environments may have drawn from torch's global generator.
        self.learner.load_state_dict(state["learner"])
        if exact:
            self.learner.version = self.sampler.version
            self._published = True
        self.progress = Progress(
            steps=state["steps"],
            frames=state["frames"],
            batches=state["batches"],
            updates=self.learner.updates,
            total_steps=self.total_steps,
            seconds=state["seconds"],
        )
