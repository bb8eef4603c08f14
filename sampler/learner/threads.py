"""How many of torch's threads a learner on the CPU uses: as many as make it faster."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sampler.learner.trainer import Progress

GAIN = 1.03
"""More threads are kept only if they make this many times as many updates; less may be noise."""


@dataclass(frozen=True)
class Phase:
    """A part of the trial."""

    threads: int
    seconds: float
    counts: bool
    """Whether its updates are counted; otherwise the run is still settling."""


class LearnerThreads:
    """A hook of the Trainer that tries all cores for a while and keeps what is faster.

    The learner begins with the cores that the workers leave free. If the run waits for the learner,
    the workers leave more cores free than that; if it waits for the environments, more threads
    would only slow these down. The updates made per second show which of the two holds. Call
    `sampler.process.resources.let_threads_sleep` before torch is loaded; otherwise torch's threads
    wait by spinning, and more of them than free cores are never faster.
    """

    def __init__(self, spare: int, cores: int) -> None:
        """spare: threads to begin with; cores: threads to try."""
        self.threads = spare
        self._phases = [
            Phase(spare, 5.0, counts=False),
            Phase(spare, 8.0, counts=True),
            Phase(cores, 2.0, counts=False),
            Phase(cores, 8.0, counts=True),
        ]
        if cores <= spare:
            self._phases = []
        self._rates: dict[int, float] = {}
        self._last = Progress()
        self._seconds = 0.0
        self._updates = 0
        torch.set_num_threads(spare)

    def __call__(self, progress: Progress) -> None:
        """Count the time and updates since the last call; end a phase whose time is over."""
        last, self._last = self._last, progress
        if not self._phases or progress.run_seconds < last.run_seconds:
            return  # already decided, or the first batch of another run
        self._seconds += progress.run_seconds - last.run_seconds
        self._updates += progress.updates - last.updates
        phase = self._phases[0]
        if self._seconds < phase.seconds:
            return
        if phase.counts:
            self._rates[phase.threads] = self._updates / self._seconds
        self._seconds, self._updates = 0.0, 0
        self._phases.pop(0)
        self._use(self._phases[0].threads if self._phases else self._fastest())

    def _fastest(self) -> int:
        (spare, few), (cores, many) = self._rates.items()
        return cores if many > GAIN * few else spare

    def _use(self, threads: int) -> None:
        if threads != self.threads:
            self.threads = threads
            torch.set_num_threads(threads)
