"""Evaluation while training: a process of low priority that plays saved weights.

Training goes on meanwhile. One evaluation runs at a time; the next begins when it is over, even if
it is due earlier. The best checkpoint is the one with the highest mean greedy score.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cli.options import Options
from sampler import seeds
from sampler.errors import one_line
from sampler.evaluation import Evaluation
from sampler.learner import checkpoint
from sampler.learner.checkpoint import CheckpointError, CheckpointStore
from sampler.learner.trainer import Progress, Trainer
from sampler.process.child import prepare_child
from sampler.process.launch import context, end, start

CANDIDATE = "evaluated.pt"
NICENESS = 10
END_TIMEOUT = 1.0  # seconds


@dataclass(frozen=True)
class Result:
    """One evaluation of the weights at `steps`."""

    steps: int
    seconds: float
    """Of training, when the weights were saved."""
    greedy: Evaluation
    sampled: Evaluation
    best: bool
    """Whether it is the best of the run so far."""

    def metrics(self) -> dict[str, float]:
        """By tag."""
        return {
            "eval/episodic_return": self.greedy.mean,
            "eval/episodic_return_std": self.greedy.std,
            "eval/episodic_length": float(self.greedy.lengths.mean()),
            "eval/sampled_return": self.sampled.mean,
            "eval/sampled_return_std": self.sampled.std,
        }

    def describe(self) -> str:
        """One line."""
        best = ", the best so far" if self.best else ""
        return (
            f"evaluated step {self.steps:,}: greedy {self.greedy.mean:,.2f} +- "
            f"{self.greedy.std:,.2f}, sampled {self.sampled.mean:,.2f} +- {self.sampled.std:,.2f} "
            f"({len(self.greedy.scores)} games each{best})"
        )


class BackgroundEvaluation:
    """A hook of the Trainer that evaluates at a fixed interval of steps and reports the results."""

    def __init__(
        self,
        options: Options,
        store: CheckpointStore,
        trainer: Trainer,
        report: Callable[[Result], None],
        warn: Callable[[str], None],
    ) -> None:
        self._options = options
        self._every = options.evaluation.eval_every
        self._store = store
        self._trainer = trainer
        self._report = report
        self._warn = warn
        self._candidate = store.folder / CANDIDATE
        self._next = (trainer.progress.steps // self._every + 1) * self._every
        self._late = False  # one was due while another was running
        self.best = self._best_so_far()
        """The highest mean greedy score of the run; None before there is one."""
        self._running: tuple[int, float] | None = None  # steps and seconds of the candidate
        self._began = 0.0  # when the candidate was sent
        self._process: Any = None
        self._connection: Any = None

    @property
    def busy(self) -> bool:
        """Whether an evaluation is running."""
        return self._running is not None

    def __call__(self, progress: Progress) -> None:
        """Report a result that has arrived, and begin an evaluation that is due."""
        self.poll()
        if progress.steps < self._next:
            return
        if self.busy:
            self._late = True
        else:
            self.start(progress)

    def start(self, progress: Progress) -> None:
        """Save the present weights and have them evaluated."""
        skipped = (progress.steps - self._next) // self._every
        if self._late and skipped > 0:  # what a single large batch passes is no delay
            self._warn(
                f"{skipped} evaluation{'s' if skipped > 1 else ''} before that of step "
                f"{progress.steps:,} {'were' if skipped > 1 else 'was'} skipped, since the one "
                "before took longer; raise --eval-every, or lower --eval-episodes"
            )
        self._late = False
        self._next = (progress.steps // self._every + 1) * self._every
        state = self._trainer.state_dict()
        state.pop("sampler", None)  # not needed here, and large, like the replay
        state["learner"].pop("replay", None)
        checkpoint.save(self._candidate, state)
        self._running = (progress.steps, progress.seconds)
        self._began = time.monotonic()
        try:
            self._send()
        except OSError:  # the process has died between two evaluations
            self._start_process()
            self._send()

    def poll(self, timeout: float = 0.0) -> None:
        """Report the result of a running evaluation if it arrives within `timeout` seconds."""
        if self._running is None:
            return
        steps, seconds = self._running
        if not self._connection.poll(timeout):
            self._give_up_if_late(steps)
            return
        self._running = None
        try:
            answer = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            answer = f"its process ended with exit code {self._process.exitcode}"
            self._process = None
        if isinstance(answer, str):
            self._warn(f"the evaluation of step {steps:,} failed: {answer}")
            return
        greedy, sampled = answer
        best = self.best is None or greedy.mean > self.best
        if best:
            self.best = greedy.mean
            state = checkpoint.load(self._candidate)
            state["evaluation"] = {"steps": steps, "score": greedy.mean}
            self._store.save_best(state)
        self._report(Result(steps, seconds, greedy, sampled, best))

    def _give_up_if_late(self, steps: int) -> None:
        limit = self._options.evaluation.eval_timeout
        if time.monotonic() - self._began < limit:
            return
        self._end_process()
        self._running = None
        self._warn(
            f"the evaluation of step {steps:,} gave no result within eval_timeout={limit:g} s; "
            "raise it, or have fewer eval_episodes"
        )

    def finish(self, stopped: Callable[[], bool]) -> None:
        """Wait for the running evaluation and for one of the last weights, unless `stopped`."""
        evaluated = self._running
        self._wait(stopped)
        progress = self._trainer.progress
        if not stopped() and (evaluated is None or evaluated[0] != progress.steps):
            self.start(progress)
            self._wait(stopped)

    def _wait(self, stopped: Callable[[], bool]) -> None:
        while self._running is not None and not stopped():
            self.poll(timeout=0.2)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._end_process()
        self._candidate.unlink(missing_ok=True)

    def __enter__(self) -> BackgroundEvaluation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self) -> None:
        if self._process is None:
            self._start_process()
        self._connection.send(str(self._candidate))

    def _start_process(self) -> None:
        chosen = context("spawn")  # torch needs a clean process
        self._connection, other = chosen.Pipe()
        self._process = chosen.Process(
            target=_main, args=(other, self._options), name="fastrl evaluation", daemon=True
        )
        start(self._process)
        other.close()

    def _end_process(self) -> None:
        if self._process is not None:
            end(self._process, END_TIMEOUT)
            self._connection.close()
            self._process = None

    def _best_so_far(self) -> float | None:
        """The score of the best checkpoint of a resumed run."""
        if not self._store.best.exists():
            return None
        try:
            return float(checkpoint.load(self._store.best)["evaluation"]["score"])
        except (CheckpointError, KeyError) as error:
            self._warn(f"the best checkpoint's score is lost ({error}); the next one replaces it")
            return None


def _main(connection: Connection, options: Options) -> None:
    """The process: answers every path with (greedy, sampled) results, or with the error as a
    line."""
    import torch

    prepare_child()
    os.nice(NICENESS)
    torch.set_num_threads(1)
    chosen = options.evaluation
    while True:
        try:
            path = Path(connection.recv())
        except EOFError:
            return
        try:
            state = checkpoint.load(path)
            # not the seeds of fastrl-eval, which would judge the best checkpoint by the same games
            # that it was chosen by
            seed = seeds.integer(chosen.eval_seed, seeds.SELECTION)
            answer: Any = tuple(
                options.play(
                    state,
                    episodes=chosen.eval_episodes,
                    lanes=chosen.eval_lanes,
                    seed=seed,
                    greedy=greedy,
                    max_game_steps=chosen.eval_max_game_steps,
                )
                for greedy in (True, False)
            )
        except Exception as error:
            answer = one_line(error)
        connection.send(answer)
