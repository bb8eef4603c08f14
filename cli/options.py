"""The settings of a run: one frozen dataclass per component, each a group of flags.

Defaults come from the preset for the environment and the algorithm, or, with --resume, from the
run's config.json. Flags given by the user override both.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
from torch import nn
from tyro.conf import OmitArgPrefixes

from cli.command_line import flags, parse
from cli.early_flags import early_flags
from cli.run_folder import find_run
from cli.saved_settings import present_name, read_settings
from sampler.checks import check_numbers
from sampler.config import SamplerConfig, SamplerSettings
from sampler.envs.facts import EnvironmentFacts
from sampler.errors import ConfigError
from sampler.evaluation import (
    MAX_GAME_STEPS,
    Decision,
    Evaluation,
    EvaluationProgress,
    evaluate,
)
from sampler.learner.algorithms.registry import ALGORITHMS, find_algorithm
from sampler.learner.base import LearnerConfig
from sampler.learner.presets import Preset, choose_preset
from sampler.models import ModelConfig, as_policy_model, load_weights
from sampler.models.factories import ModelMaker, find_model
from sampler.runtime.inspection import inspect

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
    """Learning algorithm: appo, ppo, impala, a2c, r2d2, apex, dqn, or module:Learner."""
    model: str = ""
    """What makes the network, as module:factory; empty: the algorithm's own."""
    init_from: str = ""
    """Run whose last weights this one starts with: its folder, its name in run_dir, or a file of a
    checkpoint. The networks must be alike; nothing else is taken over."""
    total_steps: int = TOTAL_STEPS
    """Agent steps at which the run ends, resumed parts included."""
    total_seconds: float | None = None
    """Seconds of training after which this run ends, if that is earlier; None: no limit."""
    seed: int = 0
    """Root of every random stream."""

    def __post_init__(self) -> None:
        check_numbers(self, "total_steps", whole=True, least=1)
        check_numbers(self, "seed", whole=True, least=0)
        check_numbers(self, "total_seconds", above=0, unit="seconds", optional=True)


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
        check_numbers(self, "log_every", above=0, unit="seconds")
        check_numbers(self, "checkpoint_every", whole=True, least=0)
        check_numbers(self, "checkpoint_seconds", least=0, unit="seconds")
        check_numbers(self, "keep_checkpoints", whole=True, least=2)


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
    eval_max_game_steps: int = MAX_GAME_STEPS
    """Agent steps in which a game must end; a longer one is an error."""

    def __post_init__(self) -> None:
        check_numbers(self, "eval_every", "eval_seed", whole=True, least=0)
        counts = ("eval_episodes", "eval_lanes", "eval_max_game_steps")
        check_numbers(self, *counts, whole=True, least=1)
        check_numbers(self, "eval_timeout", above=0, unit="seconds")


@dataclass(frozen=True)
class Options:
    """Everything that can be set."""

    environment: OmitArgPrefixes[EnvironmentOptions] = field(default_factory=EnvironmentOptions)
    training: OmitArgPrefixes[TrainingOptions] = field(default_factory=TrainingOptions)
    sampler: OmitArgPrefixes[SamplerSettings] = field(default_factory=SamplerSettings)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    """How the algorithm learns."""
    model: Any = field(default_factory=ModelConfig)
    """The network. Images go through a convolutional encoder, everything else through an MLP."""
    logging: OmitArgPrefixes[LoggingOptions] = field(default_factory=LoggingOptions)
    evaluation: OmitArgPrefixes[EvaluationOptions] = field(default_factory=EvaluationOptions)

    def sampler_config(self, seed: int) -> SamplerConfig:
        """The sampler's configuration, with `seed` as the root of its streams."""
        return SamplerConfig(
            env=self.environment.env,
            env_kwargs=self.environment.kwargs(),
            seed=seed,
            **dataclasses.asdict(self.sampler),
        )

    def model_factory(
        self, checkpoint: Mapping[str, Any] | None = None
    ) -> Callable[[gym.Space, gym.Space], nn.Module]:
        """What makes the model from the spaces, with the weights of a checkpoint if one is given.

        The factory raises ConfigError where they do not fit.
        """
        maker, config = model_maker(self.training), self.model
        weights = None if checkpoint is None else checkpoint["learner"]["model"]

        def make(observation_space: gym.Space, action_space: gym.Space) -> nn.Module:
            model = as_policy_model(maker(observation_space, action_space, config))
            if weights is not None:
                load_weights(model, weights)
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
        progress: Callable[[EvaluationProgress], None] | None = None,
        max_game_steps: int = MAX_GAME_STEPS,
    ) -> Evaluation:
        """Evaluate the model of a checkpoint in this environment, on the CPU.

        watch: called with an environment that renders; trace: with decisions; progress: with how
        far it has come. Raises ConfigError where the weights do not fit, EnvError where the
        environment fails or a game does not end in `max_game_steps` agent steps.
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
            progress=progress,
            max_game_steps=max_game_steps,
        )

    def as_dict(self) -> dict[str, Any]:
        """Nested dicts of plain values, for config.json."""
        return dataclasses.asdict(self)


def model_maker(training: TrainingOptions) -> ModelMaker:
    """What makes the model: that of --model, or the algorithm's. Raises ConfigError."""
    return find_model(training.model) if training.model else find_algorithm(training.algo).model


GIVEN_COUNTS = ("workers", "envs_per_worker", "groups")
GIVEN = ("env", "algo", "model", *GIVEN_COUNTS)
EARLY: dict[Any, tuple[str, ...]] = {
    EnvironmentOptions: ("env", "env_kwargs"),
    TrainingOptions: ("algo", "model", "seed"),
    SamplerSettings: (*GIVEN_COUNTS, "serial", "start_timeout"),
    LoggingOptions: ("resume", "run_dir"),
}
"""The flags on which the defaults and even the existence of others depend, by their groups."""


class Parsed(NamedTuple):
    """What the arguments of a command come to."""

    options: Options
    line: str
    """Where the defaults come from, and what the flags changed."""
    facts: EnvironmentFacts | None
    """What the environment says about itself, where it was looked at to choose the defaults."""


def parse_options(arguments: Sequence[str]) -> Parsed:
    """The options that `arguments` give. Raises ConfigError, in one line, for what cannot work."""
    arguments = _spelled_out(arguments)
    early, facts = early_flags(arguments, EARLY, GIVEN), None
    check_numbers(early, *GIVEN_COUNTS, whole=True, least=1, optional=True)
    if early.resume:
        path = find_run(early.resume, early.run_dir)
        default = saved_options(path)
        for name, saved in (
            ("env", default.environment.env),
            ("algo", default.training.algo),
            ("model", default.training.model),
        ):
            if getattr(early, name) not in (None, saved):
                raise ConfigError(
                    f"--resume {early.resume} goes on with {name} {saved or 'of the algorithm'}, "
                    f"not {getattr(early, name)}; leave --{name} out, or start a new run"
                )
        line = f"resuming {path.name}"
    else:
        facts = _inspect(early) if early.env else None
        preset = _preset(early, facts)
        default = _with_preset(preset, early)
        line = preset.describe()
    options = parse(default, arguments, PROG, DESCRIPTION, _flags_of_others(default))
    if not options.environment.env:
        raise ConfigError("--env is missing; give a Gymnasium id, such as --env CartPole-v1")
    options = _with_rows(default, options)
    options.sampler_config(options.training.seed)  # raises if it cannot work
    if changed := _changes(default, options):
        line += f"; changed: {', '.join(changed)}"
    return Parsed(options, line, facts)


def _flags_of_others(options: Options) -> dict[str, list[str]]:
    """The flags that only other algorithms have, with the names of these."""
    own, others = flags(options), defaultdict(list)
    for name, algorithm in ALGORITHMS.items():
        for flag in flags(replace(options, learner=algorithm.config())):
            if flag not in own:
                others[flag].append(name)
    return others


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
    return read_settings(path, Options, _own_settings)


def _own_settings(training: TrainingOptions) -> dict[str, type]:
    """The dataclasses of the groups whose settings depend on what is trained."""
    return {
        "learner": find_algorithm(training.algo).config,
        "model": model_maker(training).settings,
    }


def _inspect(early: argparse.Namespace) -> EnvironmentFacts:
    """Look at the environment of --env. Raises ConfigError or EnvError where there is none."""
    keywords = dict(map(_keyword, early.env_kwargs))
    return inspect(
        SamplerConfig(early.env, keywords, start_timeout=early.start_timeout, serial=early.serial)
    )


def _preset(early: argparse.Namespace, facts: EnvironmentFacts | None) -> Preset:
    """The preset for --env and --algo; without --env, that for a small task."""
    if facts is not None:
        spaces = facts.observation_space, facts.action_space
    else:
        spaces = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)
    return choose_preset(
        early.algo or TrainingOptions.algo,
        *spaces,
        workers=early.workers,
        envs_per_worker=early.envs_per_worker,
        groups=early.groups,
        model=find_model(early.model) if early.model else None,
    )


def _with_preset(preset: Preset, early: argparse.Namespace) -> Options:
    steps = TOTAL_STEPS if preset.family == "images" else TOTAL_STEPS_OF_SMALL_TASKS
    return Options(
        environment=EnvironmentOptions(env=early.env or ""),
        training=TrainingOptions(algo=preset.algorithm, model=early.model or "", total_steps=steps),
        sampler=SamplerSettings(**preset.sampler),
        learner=replace(preset.learner, seed=early.seed),
        model=preset.model,
    )


def _spelled_out(arguments: Sequence[str]) -> list[str]:
    """`arguments` with short names written out, and former names replaced."""
    split = [argument.partition("=") for argument in arguments]
    return [
        SHORT.get(name, present_name(name)) + separator + value for name, separator, value in split
    ]


def _keyword(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise ConfigError(f"env_kwargs={text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
