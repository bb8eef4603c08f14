"""The settings of a run: one frozen dataclass per component, each a group of flags.

Defaults come from the preset for the environment and the algorithm, or, with --resume, from the
run's config.json. Flags given by the user override both.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
from torch import nn
from tyro.conf import OmitArgPrefixes

from cli.command_line import parse
from cli.run_folder import find_run, read_config
from sampler.config import SamplerConfig
from sampler.errors import ConfigError
from sampler.evaluation import Decision, Evaluation, evaluate
from sampler.learner.algorithms.registry import ALGORITHMS
from sampler.learner.base import LearnerConfig
from sampler.learner.presets import Preset, choose_preset
from sampler.models import ModelConfig, load_weights
from sampler.rollout_worker.probe import inspect_environment
from sampler.runtime.inspection import inspect_in_process

PROG = "fastrl-train"
TOTAL_STEPS = 10_000_000  # agent steps
TOTAL_STEPS_OF_SMALL_TASKS = 500_000
SHORT = {"--learner.lr": "--learner.learning-rate", "--learner.lambda": "--learner.lambda_"}
DESCRIPTION = (
    "Train an agent: rollout workers step environments, policy workers choose actions in batches, "
    "and a learner improves the policy, all at the same time. Defaults are those of the preset for "
    "--env and --algo; give both with --help to see them."
)


@dataclass(frozen=True)
class EnvironmentOptions:
    """What is learned."""

    env: str = ""
    """Gymnasium id, or module:id; Atari ids work as they are."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment as name=value; values are JSON, or text."""

    def kwargs(self) -> dict[str, Any]:
        """`env_kwargs` as keyword arguments. Raises ConfigError for one without a name."""
        return dict(map(_keyword, self.env_kwargs))


@dataclass(frozen=True)
class TrainingOptions:
    """What trains it, and for how long."""

    algo: str = "appo"
    """Learning algorithm: appo, ppo, impala, a2c, r2d2, apex or dqn."""
    total_steps: int = TOTAL_STEPS
    """Agent steps at which the run ends, resumed parts included."""
    total_seconds: float | None = None
    """Seconds of training after which this run ends, if that is earlier; None: no limit."""
    seed: int = 0
    """Root of every random stream."""

    def __post_init__(self) -> None:
        _check(self, "total_steps", self.total_steps >= 1, "at least 1")
        _check(self, "seed", self.seed >= 0, "at least 0")
        limited = self.total_seconds is None or self.total_seconds > 0
        _check(self, "total_seconds", limited, "greater than 0 seconds")


@dataclass(frozen=True)
class SamplerOptions:
    """Processes, and the batches they make."""

    workers: int = 2
    """Rollout workers, processes; more than there are cores are allowed."""
    envs_per_worker: int = 8
    """Environments (lanes) in each rollout worker."""
    groups: int = 2
    """Groups of lanes per worker; one is stepped while another waits for its actions."""
    rollout: int = 32
    """Steps in a stored sequence (row); r2d2 takes burn_in + sequence instead."""
    batch: int = 32
    """Rows in a batch."""
    buffers: int | None = None
    """Batch buffers; None: one row for every lane, and two batches."""
    overlap: int = 0
    """Steps that a row repeats from the end of the same lane's previous row; r2d2, apex and dqn
    take what they need instead."""
    policy_workers: int = 1
    """Policy workers, processes; 0: each rollout worker chooses the actions of its own lanes."""
    device: str = "auto"
    """Device of policy workers and learner: auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of forward passes; auto: bfloat16 where the device has it natively."""
    sync: bool = False
    """Make every row of a batch with the newest weights."""
    serial: bool = False
    """Run everything in one process, reproducibly, resumed or not."""
    straggler_timeout: float | None = None
    """Seconds after a batch's first finished row at which late rows are given up; None: never."""
    max_restarts: int = 3
    """Restarts of failed workers before the run fails."""
    start_timeout: float = 120.0
    """Seconds within which every worker must be ready."""
    step_timeout: float | None = None
    """Seconds a step, a reset or an inference may take before its worker is restarted; None:
    forever."""
    start_method: Literal["forkserver", "spawn"] = "forkserver"
    """How rollout workers are started."""


@dataclass(frozen=True)
class LoggingOptions:
    """What is written, and where."""

    run_dir: str = "runs"
    """Folder that holds the run folders."""
    resume: str = ""
    """Run to go on with: its folder, its name in run_dir, or latest."""
    log_every: float = 5.0
    """Seconds between two rows of metrics."""
    checkpoint_every: int = 250_000
    """Agent steps between two checkpoints; 0: only by time, and at the end."""
    checkpoint_seconds: float = 600.0
    """Seconds after which the next checkpoint is saved at the latest; 0: only by steps."""
    keep_checkpoints: int = 3
    """Checkpoints kept, besides the best."""
    tensorboard: bool = True
    """Write TensorBoard events."""

    def __post_init__(self) -> None:
        _check(self, "log_every", self.log_every > 0, "greater than 0 seconds")
        for name in ("checkpoint_every", "checkpoint_seconds"):
            _check(self, name, getattr(self, name) >= 0, "at least 0")
        _check(self, "keep_checkpoints", self.keep_checkpoints >= 2, "at least 2")


@dataclass(frozen=True)
class EvaluationOptions:
    """Evaluation while training, in a process of its own."""

    eval_every: int = 0
    """Agent steps between two evaluations; 0: none."""
    eval_episodes: int = 10
    """Games of each evaluation, greedy and sampled alike."""
    eval_lanes: int = 5
    """Environments side by side."""
    eval_seed: int = 0
    """Seed of the evaluation's own streams."""
    eval_timeout: float = 3600.0
    """Seconds after which an evaluation without a result is given up."""

    def __post_init__(self) -> None:
        for name in ("eval_every", "eval_seed"):
            _check(self, name, getattr(self, name) >= 0, "at least 0")
        for name in ("eval_episodes", "eval_lanes"):
            _check(self, name, getattr(self, name) >= 1, "at least 1")
        _check(self, "eval_timeout", self.eval_timeout > 0, "greater than 0")


@dataclass(frozen=True)
class Options:
    """Everything that can be set."""

    environment: OmitArgPrefixes[EnvironmentOptions] = field(default_factory=EnvironmentOptions)
    training: OmitArgPrefixes[TrainingOptions] = field(default_factory=TrainingOptions)
    sampler: OmitArgPrefixes[SamplerOptions] = field(default_factory=SamplerOptions)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    """How the algorithm learns."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The network. Images go through a convolutional encoder, everything else through an MLP."""
    logging: OmitArgPrefixes[LoggingOptions] = field(default_factory=LoggingOptions)
    evaluation: OmitArgPrefixes[EvaluationOptions] = field(default_factory=EvaluationOptions)

    def sampler_config(self, seed: int) -> SamplerConfig:
        """The sampler's configuration, with `seed` as the root of its streams."""
        settings = dataclasses.asdict(self.sampler)
        settings |= self.learner.rows(settings["rollout"], settings["overlap"])
        return SamplerConfig(
            env=self.environment.env,
            env_kwargs=self.environment.kwargs(),
            seed=seed,
            **settings,
        )

    def model_factory(
        self, checkpoint: Mapping[str, Any] | None = None
    ) -> Callable[[gym.Space, gym.Space], nn.Module]:
        """What makes the model from the spaces, with the weights of a checkpoint if one is given.

        The factory raises ConfigError where they do not fit.
        """
        config = self.model
        make_model = ALGORITHMS[self.training.algo].make_model

        def make(observation_space: gym.Space, action_space: gym.Space) -> nn.Module:
            model = make_model(observation_space, action_space, config)
            if checkpoint is not None:
                load_weights(model, checkpoint["learner"]["model"])
            return model

        return make

    def play(
        self,
        checkpoint: Mapping[str, Any],
        *,
        episodes: int,
        lanes: int,
        seed: int,
        greedy: bool,
        watch: Callable[[Any], None] | None = None,
        trace: Callable[[Decision], None] | None = None,
    ) -> Evaluation:
        """Evaluate the model of a checkpoint in this environment, on the CPU.

        watch: called with an environment that renders; trace: with decisions. Raises ConfigError
        where the weights do not fit, EnvError where the environment fails.
        """
        rendering = {} if watch is None else {"render_mode": "rgb_array"}
        return evaluate(
            self.model_factory(checkpoint),
            self.environment.env,
            env_kwargs=self.environment.kwargs() | rendering,
            episodes=episodes,
            lanes=lanes,
            seed=seed,
            greedy=greedy,
            watch=watch,
            trace=trace,
        )

    def as_dict(self) -> dict[str, Any]:
        """Nested dicts of plain values, for config.json."""
        return dataclasses.asdict(self)


def parse_options(arguments: Sequence[str]) -> tuple[Options, str]:
    """The options that `arguments` give, and a line that says where their defaults come from.

    Raises ConfigError, in one line, for whatever cannot work.
    """
    early = _early(arguments)
    if early.resume:
        path = find_run(early.resume, early.run_dir)
        default = saved_options(path)
        for name, saved in (
            ("env", default.environment.env),
            ("algo", default.training.algo),
        ):
            if getattr(early, name) not in (None, saved):
                raise ConfigError(
                    f"--resume {early.resume} goes on with {name} {saved}, "
                    f"not {getattr(early, name)}; leave --{name} out, or start a new run"
                )
        line = f"resuming {path.name}"
    else:
        preset = _preset(early)
        default = _with_preset(preset, early)
        line = preset.describe()
    options = parse(default, _spelled_out(arguments), PROG, DESCRIPTION)
    if not options.environment.env:
        raise ConfigError("--env is missing; give a Gymnasium id, such as --env CartPole-v1")
    options = _with_rows(default, options)
    options.sampler_config(options.training.seed)  # raises if it cannot work
    if changed := _changes(default, options):
        line += f"; changed: {', '.join(changed)}"
    return options, line


def _with_rows(default: Options, options: Options) -> Options:
    """`options` with the rows that the learner's settings ask for.

    Raises ConfigError where a flag gives others.
    """
    given = options.sampler
    rows: dict[str, Any] = {**options.learner.rows(given.rollout, given.overlap)}
    for name, wanted in rows.items():
        if getattr(given, name) not in (wanted, getattr(default.sampler, name)):
            raise ConfigError(
                f"{name}={getattr(given, name)} does not go with {options.training.algo}, whose "
                f"settings need {name}={wanted}; leave --{name} out, and change those of --learner"
            )
    return replace(options, sampler=replace(given, **rows))


def _changes(default: Options, options: Options) -> list[str]:
    """What the flags changed in learner, model and sampler, as name=value."""
    return [
        f"{setting.name}={value}"
        for group in ("sampler", "learner", "model")
        for setting in dataclasses.fields(getattr(options, group))
        if (value := getattr(getattr(options, group), setting.name))
        != getattr(getattr(default, group), setting.name)
    ]


def saved_options(path: Path) -> Options:
    """The options in the config.json of run folder `path`. Raises ConfigError if they are not."""
    config = read_config(path)
    try:
        algo = config["training"]["algo"]
        learner = ALGORITHMS[algo].config
        groups = {group.name: group for group in dataclasses.fields(Options)}
        types: dict[str, Any] = {
            name: learner if name == "learner" else group.default_factory
            for name, group in groups.items()
        }
        return Options(**{name: _rebuilt(types[name], config[name]) for name in groups})
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{path / 'config.json'} does not fit this release ({type(error).__name__}: {error}); "
            "use the one that wrote it, or start a new run"
        ) from None


def _rebuilt(cls: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass from what JSON kept of it: tuples have become lists."""
    return cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()})


def _early(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags on which the defaults of all others depend. Mistakes are reported by `parse`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--env")
    parser.add_argument("--env-kwargs", "--env_kwargs", nargs="*", default=[])
    parser.add_argument("--algo")
    parser.add_argument("--resume", default="")
    parser.add_argument("--run-dir", "--run_dir", default="runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--envs-per-worker", "--envs_per_worker", type=int)
    parser.add_argument("--groups", type=int)
    parser.add_argument("--serial", action="store_true")
    limit = SamplerOptions.start_timeout
    parser.add_argument("--start-timeout", "--start_timeout", type=float, default=limit)
    try:
        return parser.parse_known_args(arguments)[0]
    except argparse.ArgumentError as error:
        raise ConfigError(f"{error.argument_name}: {error.message}") from None


def _preset(early: argparse.Namespace) -> Preset:
    """The preset for --env and --algo; without --env, that for a small task."""
    if early.env:
        keywords = dict(map(_keyword, early.env_kwargs))
        inspect = inspect_environment if early.serial else inspect_in_process
        facts = inspect(SamplerConfig(early.env, keywords, start_timeout=early.start_timeout))
        spaces = facts.observation_space, facts.action_space
    else:
        spaces = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)
    for name in ("workers", "envs_per_worker", "groups"):
        value = getattr(early, name)
        _check(early, name, value is None or value >= 1, "at least 1")
    return choose_preset(
        early.algo or TrainingOptions.algo,
        *spaces,
        workers=early.workers,
        envs_per_worker=early.envs_per_worker,
        groups=early.groups,
    )


def _with_preset(preset: Preset, early: argparse.Namespace) -> Options:
    steps = TOTAL_STEPS if preset.family == "images" else TOTAL_STEPS_OF_SMALL_TASKS
    return Options(
        environment=EnvironmentOptions(env=early.env or ""),
        training=TrainingOptions(algo=preset.algorithm, total_steps=steps),
        sampler=replace(SamplerOptions(), **preset.sampler),
        learner=replace(preset.learner, seed=early.seed),
        model=preset.model,
    )


def _spelled_out(arguments: Sequence[str]) -> list[str]:
    """`arguments` with short names written out."""
    split = [argument.partition("=") for argument in arguments]
    return [SHORT.get(name, name) + separator + value for name, separator, value in split]


def _keyword(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise ConfigError(f"env_kwargs={text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _check(options: Any, name: str, good: bool, wanted: str) -> None:
    if not good:
        raise ConfigError(f"{name}={getattr(options, name)} must be {wanted}")
