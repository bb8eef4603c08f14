"""One training run, from its settings to its summary: what fastrl-train does."""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from math import ceil, gcd
from pathlib import Path
from typing import Any

import torch

from cli.background_evaluation import BackgroundEvaluation
from cli.display import DisplayHandler, PlainDisplay
from cli.exits import Stopped, StopSignals
from cli.metrics_writer import MetricsWriter
from cli.options import Options
from cli.origin import describe, origin
from cli.reporter import Reporter
from cli.run_folder import RunFolder, find_run, link_latest
from cli.saver import Saver
from sampler import seeds
from sampler.config import SamplerConfig
from sampler.envs.facts import EnvironmentFacts
from sampler.errors import ConfigError, EnvError, FastrlError, StateError, WorkerError
from sampler.learner import checkpoint
from sampler.learner.algorithms.q_learner import QLearner
from sampler.learner.algorithms.registry import find_algorithm
from sampler.learner.base import Learner, Replays
from sampler.learner.checkpoint import CheckpointStore
from sampler.learner.guards import NonFiniteError
from sampler.learner.threads import LearnerThreads
from sampler.learner.trainer import STATE, Trainer
from sampler.process.resources import available_cores, spare_threads
from sampler.sampler import Sampler

MIN_TOGETHER = 8  # lanes of a group below which stepping becomes slow
RESUMED = 1_000  # key of the stream that the seeds of resumed runs come from


def train(
    options: Options,
    command: Sequence[str],
    display: PlainDisplay,
    signals: StopSignals,
    started: float,
    settings: str,
    facts: EnvironmentFacts | None = None,
) -> None:
    """Train with `options`, in a new run folder or in that of the run to resume.

    Returns when the run has reached its end or a signal has asked it to stop, all saved.
    started: time.monotonic() when the command began. settings: the line that says where `options`
    come from. facts: of the environment, if it was looked at for the options.
    """
    with ExitStack() as stack:
        handler = DisplayHandler(display, quiet=signals.event.is_set)
        stack.enter_context(handler.attached())
        run: RunFolder | None = None
        state: dict[str, Any] | None = None
        if options.logging.resume:
            run = RunFolder.open(options.logging.resume, options.logging.run_dir)
            stack.enter_context(run)
            state, path = _store(options, run, display).load_latest()
            display.message(f"going on from {path}")
            if state["steps"] >= options.training.total_steps:
                display.message(finished(state["steps"], resuming(command[0], run.path)))
                return
        if advice := crowding(options.sampler_config(options.training.seed), available_cores()):
            display.message(advice)
        display.phase("starting workers ...")
        if state is None:
            initial = initial_weights(options, display)
            sampler, trainer = _assemble(
                options, options.training.seed, None, signals, facts, initial
            )
        else:
            sampler, trainer = _go_on(options, state, display, signals)
        stack.enter_context(sampler)
        check_disk(options, trainer, run)
        if run is None:  # only now, so that settings that cannot work leave no folder behind
            run = stack.enter_context(_new_run(options))
        found = origin(settings)
        run.save_config(options.as_dict() | {"origin": found})
        run.note_command(command)
        run.start_log()
        for line in (settings, describe(found)):
            logging.getLogger().info(line)  # for log.txt alone: displays listen to "fastrl"
        display.message(f"writing to {run.path}")
        signals.note = f"saving a checkpoint; to go on: {resuming(command[0], run.path)}"
        steps = None if state is None else state["steps"]
        writer = stack.enter_context(MetricsWriter(run.path, steps, options.logging.tensorboard))
        writer.hyperparameters(options.as_dict())
        reporter = Reporter(
            sampler,
            display,
            writer,
            started,
            options.logging.log_every,
            options.training.total_seconds,
            partial(filling, trainer.learner, trainer.learner.updates),
        )
        _run(options, trainer, _store(options, run, display), run, reporter, display, signals)


def resuming(program: str, run: Path) -> str:
    """The command that goes on with a run, for a shell."""
    return shlex.join([program, "--resume", str(run)])


def finished(steps: int, command: str) -> str:
    """What is said of a resumed run that has made all its `steps`; `command` resumes it."""
    return (
        f"its {steps:,} steps are done, so there is nothing to train; to go on: "
        f"{command} --total-steps {2 * steps}"
    )


def _go_on(
    options: Options, state: Mapping[str, Any], display: PlainDisplay, signals: StopSignals
) -> tuple[Sampler, Trainer]:
    """A sampler and what trains with it, from a checkpoint's state."""
    seed = options.training.seed
    learner = {name: part for name, part in state.items() if name != "sampler"}
    if options.sampler.serial:
        try:
            if "sampler" not in state:
                raise StateError("the checkpoint is not of a serial run whose environments worked")
            return _assemble(options, state["sampler"]["settings"]["seed"], state, signals)
        except StateError as error:
            display.warning(f"{error}; all environments start anew, on other random streams")
    return _assemble(options, resumed_seed(seed, state["steps"]), learner, signals)


def initial_weights(options: Options, display: PlainDisplay) -> dict[str, Any] | None:
    """The checkpoint that --init-from names; None without it. Raises ConfigError for no such run
    and CheckpointError for one that has none."""
    name = options.training.init_from
    if not name:
        return None
    file = Path(name)
    if file.is_file():
        state = checkpoint.load(file, fields=STATE)
    else:
        folder = find_run(name, options.logging.run_dir)
        store = CheckpointStore(folder / "checkpoints", report=display.warning, fields=STATE)
        state, file = store.load_latest()
    display.message(f"starting with the weights of {file}")
    return state


def _assemble(
    options: Options,
    seed: int,
    state: Mapping[str, Any] | None,
    signals: StopSignals,
    facts: EnvironmentFacts | None = None,
    initial: Mapping[str, Any] | None = None,
) -> tuple[Sampler, Trainer]:
    """initial: a checkpoint of another run, of which only the model's weights are taken."""
    config = options.sampler_config(seed)
    torch.manual_seed(seeds.integer(seed, seeds.LEARNER))  # what a learning model draws from
    make_model = options.model_factory(state or initial)  # such weights act from the start
    sampler = Sampler(config, make_model, facts)
    try:
        trainer = _make_trainer(options, sampler, signals)
        if state is not None:
            trainer.load_state_dict(state)
    except BaseException:
        sampler.close()
        raise
    return sampler, trainer


def check_disk(options: Options, trainer: Trainer, run: RunFolder | None) -> None:
    """Raise ConfigError where the disk has no room for the checkpoints of a new or resumed run."""
    state = trainer.state_dict()
    state["learner"].pop("replay", None)
    size = checkpoint.nbytes(state)
    if not trainer.progress.updates:
        size += 2 * checkpoint.nbytes(state["learner"]["model"])  # the optimiser's future state
    count = options.logging.keep_checkpoints + 1  # one is being written
    replay = trainer.learner.saved_replay_bytes if isinstance(trainer.learner, Replays) else 0
    needed = count * (size + replay)
    if options.evaluation.eval_every:
        count += 2  # the best one, and the one being evaluated
        needed += 2 * size
    folder = Path(options.logging.run_dir).absolute() if run is None else run.checkpoints
    written = sum(file.stat().st_size for file in folder.iterdir()) if run else 0
    while not folder.exists():
        folder = folder.parent
    needed, free = needed - written, shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigError(
            f"{count} checkpoints need {needed / 2**20:,.1f} MiB more and {free / 2**20:,.1f} MiB "
            f"are free in {folder}; lower keep_checkpoints={options.logging.keep_checkpoints}, "
            "free space, or give another --run-dir"
        )


def _run(
    options: Options,
    trainer: Trainer,
    store: CheckpointStore,
    run: RunFolder,
    reporter: Reporter,
    display: PlainDisplay,
    signals: StopSignals,
) -> None:
    """Train, evaluate and save to the end, or until a signal."""
    logging_options = options.logging
    saver = Saver(
        store,
        trainer,
        logging_options.checkpoint_every,
        logging_options.checkpoint_seconds,
        on_save=partial(link_latest, run.path),
    )
    signals.rescue = partial(_rescue, saver, display)
    trainer.hooks = (reporter, saver, *_thread_hooks(trainer))
    with signals.deferred(), ExitStack() as stack:
        evaluation = None
        if options.evaluation.eval_every:
            evaluation = BackgroundEvaluation(
                options, store, trainer, reporter.evaluation, display.warning
            )
            stack.enter_context(evaluation)
            trainer.hooks += (evaluation,)
        saver.keep_weights_whole()
        trainer.learner.optimiser.register_step_post_hook(_leave_if_urgent(signals))
        try:
            progress = trainer.run()
        except Stopped:
            progress = trainer.progress
        except (EnvError, WorkerError, NonFiniteError):
            saver.save()  # the learner is still valid
            if store.paths():
                display.close()
                again = resuming("fastrl-train", run.path)
                display.message(f"{saver.describe()}; to go on: {again}")
            raise
        saver.save()
        display.close()
        display.message(saver.describe())
        reporter.finish(progress)
        if evaluation is not None and not signals.requested:
            display.message("waiting for the evaluation of the last weights")
            evaluation.finish(lambda: signals.requested)
        if not signals.requested:
            for line in reporter.summary(progress):
                display.message(line)


def _thread_hooks(trainer: Trainer) -> list[LearnerThreads]:
    """The choice of the learner's threads; None if the same seed has to give the same bytes."""
    config = trainer.sampler.config
    spare = spare_threads(config.workers, config.policy_workers)
    torch.set_num_threads(spare)
    if config.serial or trainer.learner.device.type != "cpu":
        return []
    return [LearnerThreads(spare, available_cores())]


def filling(learner: Learner, begun: int) -> tuple[int, int] | None:
    """Steps in the learner's replay, and how many it needs to start; None: it already learns.

    begun: the learner's updates when this run began; the run fills its replay anew.
    """
    if not isinstance(learner, QLearner) or learner.updates > begun:
        return None
    stored, wanted = learner.stored_steps, learner.config.learning_starts
    return (stored, wanted) if stored < wanted else None


def _rescue(saver: Saver, display: PlainDisplay) -> None:
    """Save while the present update goes on, and report what is saved."""
    try:
        saver.save()
    except FastrlError as error:
        display.warning(str(error))
    display.message(saver.describe())


def _leave_if_urgent(signals: StopSignals) -> Callable[..., None]:
    """A hook of the optimiser that leaves an update which is too long to finish after a signal.

    Between two optimiser steps the weights are whole. Environment steps count only when their batch
    is finished, so those of this batch do not count.
    """

    def hook(*_: object) -> None:
        if signals.urgent:
            raise Stopped

    return hook


def resumed_seed(seed: int, steps: int) -> int:
    """Root of the sampler's streams for a run that goes on after `steps` agent steps.

    If environments start anew in a resumed run, the old streams would make them play the same games
    again.
    """
    return seeds.integer(seed, RESUMED, steps) if steps else seed


def crowding(config: SamplerConfig, cores: int) -> str | None:
    """A faster setting if there are more rollout workers than cores; else None."""
    if config.workers <= cores or config.serial:
        return None
    lanes = ceil(config.lanes / cores / config.groups) * config.groups
    # A group's rows are finished together, so larger groups make larger batches, except for
    # synchronous learners, whose batch is a row of every lane.
    together = gcd(lanes, config.batch)
    fits = together >= lanes // config.groups or config.sync
    kept = "" if fits or together < MIN_TOGETHER else f" --groups {lanes // together}"
    return (
        f"{config.workers} rollout workers share {cores} core{'s' if cores > 1 else ''}: "
        f"--workers {cores} --envs-per-worker {lanes}{kept} steps as many environments, and faster"
    )


def _make_trainer(options: Options, sampler: Sampler, signals: StopSignals) -> Trainer:
    learner = find_algorithm(options.training.algo).learner.for_sampler(
        sampler, options.learner, options.sampler.device, options.sampler.precision
    )
    return Trainer(
        sampler,
        learner,
        total_steps=options.training.total_steps,
        total_seconds=options.training.total_seconds,
        stop=signals.event,
    )


def _new_run(options: Options) -> RunFolder:
    return RunFolder.create(
        options.logging.run_dir,
        options.environment.env,
        options.training.algo,
        options.training.seed,
    )


def _store(options: Options, run: RunFolder, display: PlainDisplay) -> CheckpointStore:
    return CheckpointStore(
        run.checkpoints, options.logging.keep_checkpoints, display.warning, STATE
    )
