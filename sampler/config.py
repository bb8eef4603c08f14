"""What a sampler is made of: frozen dataclasses, checked before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal, NamedTuple, get_args

from sampler.checks import check_choice, check_flags, check_numbers
from sampler.errors import ConfigError
from sampler.process.registrations import Registrations

Statistic = Literal["mean", "last", "histogram"]


class InfoKey(NamedTuple):
    """A number in the infos of environments, and what is made of it."""

    path: tuple[str, ...]
    """Its key; more than one where dicts are nested."""
    statistic: Statistic
    """mean: over all steps whose info has it. last, histogram: over the last steps of episodes."""


@dataclass(frozen=True, kw_only=True)
class SamplerSettings:
    """Processes, and the batches they make.

    A lane is one environment, a group is the lanes of a worker that are stepped together, a row is
    one stored sequence of one lane.
    """

    workers: int = 2
    """Rollout worker processes."""
    envs_per_worker: int = 8
    """Lanes in each rollout worker."""
    groups: int = 2
    """Groups of lanes per worker; with 2, one is stepped while the other waits for its actions."""
    rollout: int = 32
    """Steps in a row (T), `overlap` included; r2d2 takes burn_in + sequence instead."""
    batch: int = 32
    """Rows in a batch (B)."""
    buffers: int | None = None
    """Batch buffers (K); None: enough for every lane to hold a row while two batches wait."""
    overlap: int = 0
    """Steps at the start of a row that repeat the end of the same lane's previous row; r2d2, apex
    and dqn take what they need instead."""
    policy_workers: int = 1
    """Policy worker processes; each serves a fixed share of the rollout workers. 0: every rollout
    worker chooses the actions of its own lanes, which suits CPUs with few workers."""
    device: str = "auto"
    """Device of inference (and of the learner of a command): auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of inference; auto: bfloat16 where the device has it natively."""
    serial: bool = False
    """Run everything in the calling process; the same seed gives the same bytes, and so does a
    sampler that goes on from another's state."""
    sync: bool = False
    """Make every row of a batch with the weights last published (policy lag 0)."""
    straggler_timeout: float | None = None
    """Seconds after a batch's first finished row at which late rows are given up; None: never."""
    max_restarts: int = 3
    """Restarts of failed workers, in total, before the sampler gives up."""
    start_method: Literal["forkserver", "spawn"] = "forkserver"
    """How rollout workers are started; policy workers are always spawned."""
    start_timeout: float = 120.0
    """Seconds within which every worker must have made its environments or model."""
    step_timeout: float | None = None
    """Seconds a step, a reset or an inference may take before its worker is restarted; None:
    forever."""
    info_keys: tuple[str, ...] = ()
    """Numbers in environments' infos to report: key:mean over steps, or key:last or key:histogram
    over the last steps of episodes; key alone: mean; nested keys have dots."""

    def __post_init__(self) -> None:
        check_numbers(
            self, "workers", "envs_per_worker", "groups", "rollout", "batch", whole=True, least=1
        )
        check_numbers(self, "policy_workers", "overlap", "max_restarts", whole=True, least=0)
        reason = "one is learned while one is filled"
        check_numbers(self, "buffers", whole=True, least=2, optional=True, reason=reason)
        check_numbers(self, "start_timeout", above=0, unit="seconds")
        timeouts = ("straggler_timeout", "step_timeout")
        check_numbers(self, *timeouts, above=0, unit="seconds", optional=True)
        check_flags(self, "serial", "sync")
        _ = self.parsed_info_keys  # raises if one cannot work
        if not isinstance(self.device, str):
            raise ConfigError(f"device={self.device!r} must be a string: auto, cpu, cuda or cuda:N")
        check_choice(self, "precision", ("auto", "float32", "bfloat16"))
        check_choice(self, "start_method", ("forkserver", "spawn"))
        if self.sync and self.overlap:
            raise ConfigError(
                f"overlap={self.overlap} does not go with sync=True: the steps that a row repeats "
                "were made with older weights; leave one of them out"
            )
        for name in ("straggler_timeout", "step_timeout"):
            if self.serial and getattr(self, name) is not None:
                raise ConfigError(
                    f"{name}={getattr(self, name)} does not go with serial=True: "
                    "nothing runs beside anything else; leave one of them out"
                )
        if self.envs_per_worker % self.lane_groups:
            multiple = ceil(self.envs_per_worker / self.groups) * self.groups
            raise ConfigError(
                f"envs_per_worker={self.envs_per_worker} is not a multiple of "
                f"groups={self.groups}; use {multiple} environments"
            )
        if self.batch % self.lanes_per_group:
            below = self.batch // self.lanes_per_group * self.lanes_per_group
            choices = [b for b in (below, below + self.lanes_per_group) if b]
            raise ConfigError(
                f"batch={self.batch} is not a multiple of the {self.lanes_per_group} lanes in a "
                f"group; use {' or '.join(map(str, choices))}, or change envs_per_worker or groups"
            )
        if self.policy_workers > self.workers:
            raise ConfigError(
                f"policy_workers={self.policy_workers} exceeds workers={self.workers}: "
                "some would have nothing to do"
            )

    @property
    def parsed_info_keys(self) -> list[InfoKey]:
        """`info_keys`, taken apart. Raises ConfigError for one of another form, or given twice."""
        found = []
        if not isinstance(self.info_keys, tuple | list):
            raise ConfigError(f"info_keys={self.info_keys!r} must be a tuple of strings")
        for text in self.info_keys:
            name, separator, statistic = str(text).partition(":")
            if not all(name.split(".")) or (separator and statistic not in get_args(Statistic)):
                raise ConfigError(
                    f"info_keys={text!r} must be a key, or key:mean, key:last or key:histogram"
                )
            found.append(InfoKey(tuple(name.split(".")), statistic or "mean"))  # type: ignore[arg-type]
            if found[-1] in found[:-1]:
                raise ConfigError(f"info_keys={text!r} is given twice; leave one out")
        return found

    @property
    def lanes(self) -> int:
        """Environments in all."""
        return self.workers * self.envs_per_worker

    @property
    def lane_groups(self) -> int:
        """Groups in each worker, at most one per lane."""
        return min(self.groups, self.envs_per_worker)

    @property
    def lanes_per_group(self) -> int:
        """Lanes that are stepped together, and rows in a token's block."""
        return self.envs_per_worker // self.lane_groups

    @property
    def actors(self) -> int:
        """Places where actions are chosen: the policy workers, or all rollout workers."""
        return self.policy_workers or self.workers

    @property
    def batch_buffers(self) -> int:
        """K: as set, or enough rows for every lane and two waiting batches."""
        return self.buffers if self.buffers is not None else ceil(self.lanes / self.batch) + 2


@dataclass(frozen=True)
class SamplerConfig(SamplerSettings):
    """All settings of a `Sampler`. Raises ConfigError, naming value and remedy, where one cannot
    work."""

    env: str | Callable[[], Any]
    """Gymnasium id, or a callable that returns a gymnasium.Env or gymnasium.vector.VectorEnv."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for the environment."""
    inference: Literal["model", "random"] = "model"
    """"random" draws uniform actions and needs no model."""
    seed: int = 0
    """Root of every random stream: environments, action sampling and networks."""
    identical_lanes: bool = False
    """Give every lane the same environment seed: a check for state that lanes share."""
    debug: bool = False
    """Fill released rows with poison values, and make released batches unusable."""

    def __post_init__(self) -> None:
        if not (isinstance(self.env, str) or callable(self.env)):
            remedy = "; every lane needs its own: give the id, or env=lambda: gymnasium.make(...)"
            is_made = hasattr(self.env, "reset") and hasattr(self.env, "step")
            raise ConfigError(
                f"env={self.env!r} is neither an id nor a callable{remedy if is_made else ''}"
            )
        if not isinstance(self.env_kwargs, dict) or not all(
            isinstance(key, str) for key in self.env_kwargs
        ):
            raise ConfigError(f"env_kwargs={self.env_kwargs!r} must be a dict with names as keys")
        check_choice(self, "inference", ("model", "random"))
        check_numbers(self, "seed", whole=True, least=0)
        check_flags(self, "identical_lanes", "debug")
        super().__post_init__()
        # Not among the checks of the settings alone: algorithms may replace both.
        if self.overlap >= self.rollout:
            raise ConfigError(
                f"overlap={self.overlap} must be smaller than rollout={self.rollout}: "
                "a row needs at least one new step"
            )

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to worker processes: the settings, and the ids that the caller knows."""
        needed = self.env.rpartition(":")[2] if isinstance(self.env, str) else None
        return {**self.__dict__, "registrations": Registrations(needed)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({k: v for k, v in state.items() if k != "registrations"})

    @property
    def env_name(self) -> str:
        """The environment's id, or the name of its callable."""
        if isinstance(self.env, str):
            return self.env
        return getattr(self.env, "__qualname__", None) or type(self.env).__qualname__
