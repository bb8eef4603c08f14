"""The contestants of `perf.peers`, their tasks and settings.

A peer's settings are a list of flags to try: the first are those that its authors recommend or that
were fastest during development; `--tune` tries all of them and takes the fastest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from perf import overhead, scale, train
from perf.measure import reporting
from perf.measure.ceiling import ceiling_program
from perf.measure.limit import limit_program, sleep_program
from perf.measure.live import LiveSampler, LiveTrainer
from perf.measure.programs import Program, shown
from perf.measure.settings import Sampling
from perf.peers.venvs import environment, version
from sampler.process.resources import available_cores

PROGRAMS = Path(__file__).parent / "programs"
REPORTING = Path(reporting.__file__).parent  # holds the module that programs import
ENV = "BreakoutNoFrameskip-v4"
FRAMES = 4  # emulator frames in a step
TRAINING_WARM_UP = 4.0  # seconds of each turn: several of the peers' updates
EMULATED_WORKERS, EMULATED_LANES, STEP_US = 32, 4, 400.0
NULL_LANES = 64


@dataclass(frozen=True)
class Contestant:
    """One program at one task. `open` starts it; what it yields has `measure(seconds)`."""

    name: str
    settings: str
    open: Callable[[], AbstractContextManager[Any]]
    command: str = ""


@dataclass(frozen=True)
class Task:
    """Work that is the same for all who take part."""

    title: str
    unit: str
    factor: int
    """Of the unit in an agent step: emulator frames, or 1."""
    baseline: str
    """The contestant that the others are compared with."""
    entries: list[Callable[[Lab], Iterator[Contestant]]] = field(default_factory=list)
    """Each yields the settings of one contestant, the recommended ones first."""


@dataclass(frozen=True)
class Lab:
    """Folder of the peers' environments."""

    folder: Path
    python: str
    """Interpreter that their environments are made with."""

    def interpreter(self, name: str) -> str:
        requirements = REQUIREMENTS.get(name)
        if requirements is None:
            return sys.executable  # fastrl itself needs this peer
        pinned = [_same_torch() if word == "torch" else word for word in requirements]
        return environment(self.folder, name, pinned, self.python)

    def version(self, name: str) -> str:
        return version(self.interpreter(name), name)


REQUIREMENTS = {
    "sample-factory": ["sample-factory[atari]", "torch"],
    "envpool": ["envpool", "gymnasium"],
    "stable-baselines3": ["stable-baselines3", "ale-py", "opencv-python-headless", "torch"],
}


def _same_torch() -> str:
    """Torch in the version that fastrl uses here."""
    import torch

    return "torch==" + torch.__version__.partition("+")[0]


def peer(
    title: str,
    package: str,
    script: str,
    candidates: Sequence[str],
    lab: Lab,
    env: dict[str, str] | None = None,
    warm_up: float = 2.0,
) -> Iterator[Contestant]:
    """A peer's program with each of the flags in `candidates`. Raises NotInstalled."""
    interpreter = lab.interpreter(package)
    env = {**(env or {}), "PYTHONPATH": str(REPORTING)}
    name = f"{title} {lab.version(package)}"
    for flags in candidates:
        words = [interpreter, str(PROGRAMS / script), *flags.split()]
        yield Contestant(
            name,
            flags,
            partial(Program, words, env, warm_up, start_timeout=300.0),
            shown(words, env),
        )


def sample_factory(mode: str, task: str, candidates: Sequence[str]):
    """Sample Factory, with the ROMs that it lacks from ale_py."""
    import ale_py.roms

    return partial(
        peer,
        "Sample Factory",
        "sample-factory",
        "run_sample_factory.py",
        [f"{mode} --task {task} {flags}" for flags in candidates],
        env={"ALE_PY_ROM_DIR": str(Path(ale_py.roms.__file__).parent)},
        warm_up=TRAINING_WARM_UP if mode == "train" else 2.0,
    )


def fastrl(name: str, settings: Sequence[Sampling], start: Callable[[Any], Any]):
    """This sampler, in this process, with each of the settings."""

    def entries(lab: Lab) -> Iterator[Contestant]:
        for chosen in settings:
            own = ", choosing their own actions" if chosen.policy_workers == 0 else ""
            words = (
                f"{chosen.workers} workers x {chosen.envs_per_worker} environments{own}, "
                f"{chosen.precision}"
            )
            yield Contestant(name, words, partial(start, chosen))

    return entries


def alone(name: str, make: Callable[[], Program]):
    """A limit, or a ceiling: a program of this repository."""

    def entries(lab: Lab) -> Iterator[Contestant]:
        program = make()
        yield Contestant(name, "", make, shown(program.command))

    return entries


def _sampler(settings: Sampling) -> LiveSampler:
    from sampler import Sampler

    return LiveSampler(Sampler(settings.sampler_config()))


def _null_sampler(settings: overhead.Settings) -> LiveSampler:
    return LiveSampler(settings.make_sampler())


def _emulated_sampler(settings: scale.Settings) -> LiveSampler:
    from sampler import Sampler

    config = settings.sampler_config(env_kwargs={"step_us": settings.step_us})
    return LiveSampler(Sampler(config))


def _trainer(settings: train.Settings) -> LiveTrainer:
    return LiveTrainer(train.make_trainer(settings), TRAINING_WARM_UP, train.SETTLE)


def tasks() -> dict[str, Task]:
    """All tasks by name, for the cores of this machine."""
    c = available_cores()
    own = Sampling(env=ENV, workers=c)
    learning = train.Settings(env=ENV, workers=c, device="cpu", learner_device="cpu")
    vectors = [
        f"--num-envs {envs * c} --batch-size {batch * c} --threads {c}"
        for envs, batch in ((8, 4), (3, 1), (4, 4), (32, 16))
    ]
    processes = [f"--num-envs {n * c}" for n in (4, 1, 2, 8)]
    common = f"--num_workers={c} --worker_num_splits=2 --rollout=32 --async_rl=True"
    sf_lanes = [f"{common} --num_envs_per_worker={n}" for n in (16, 8, 32)]
    sf_sampling = [f"{flags} --batch_size={64 * 32 * c}" for flags in sf_lanes]
    sf_null = f"{common} --num_envs_per_worker={NULL_LANES} --batch_size={NULL_LANES * 32 * c}"
    sf_emulated = (
        f"--num_workers={EMULATED_WORKERS} --num_envs_per_worker={EMULATED_LANES} "
        "--worker_num_splits=2 --rollout=32 --async_rl=True "
        f"--batch_size={EMULATED_WORKERS * EMULATED_LANES * 32}"
    )
    plain = "--normalize_input=False"
    one_epoch = "--batch_size=1024 --num_batches_per_epoch=1 --num_epochs=1"
    four_epochs = "--batch_size=256 --num_batches_per_epoch=4 --num_epochs=4"
    emulated = scale.Settings(
        workers=EMULATED_WORKERS, envs_per_worker=EMULATED_LANES, step_us=STEP_US
    )
    null = overhead.Settings(workers=c, envs_per_worker=NULL_LANES)
    full = replace(null, copy_frames=True, inference="model", device="cpu")
    model = replace(own, inference="model", device="cpu")

    def variants(settings: Any) -> list[Any]:
        """With a policy worker, and with rollout workers that choose their own actions."""
        rows = max(settings.batch, settings.envs_per_worker)
        local = replace(settings, policy_workers=0, groups=1, batch=rows)
        return [settings, local, replace(local, envs_per_worker=32)]

    limit = alone("bare emulator", partial(limit_program, ENV))
    return {
        "random": Task(
            "Sampling Breakout, random actions",
            "frames/s",
            FRAMES,
            "bare emulator",
            [
                limit,
                fastrl("fastrl", variants(own), _sampler),
                partial(peer, "EnvPool", "envpool", "run_envpool.py", vectors),
                partial(peer, "ale_py AtariVectorEnv", "ale-py", "run_ale_vector.py", vectors),
                partial(
                    peer, "Gymnasium AsyncVectorEnv", "gymnasium", "run_gymnasium.py", processes
                ),
                partial(
                    peer,
                    "Stable-Baselines3 SubprocVecEnv",
                    "stable-baselines3",
                    "run_stable_baselines3.py",
                    processes,
                ),
            ],
        ),
        "inference": Task(
            "Sampling Breakout, Nature CNN on the CPU",
            "frames/s",
            FRAMES,
            "fastrl",
            [
                fastrl("fastrl", variants(model), _sampler),
                fastrl("fastrl float32", variants(replace(model, precision="float32")), _sampler),
                sample_factory("sample", "breakout", [*sf_sampling, f"{sf_sampling[0]} {plain}"]),
            ],
        ),
        "train": Task(
            "Training APPO on Breakout, 1 epoch, batches of 1,024 steps",
            "frames/s",
            FRAMES,
            "fastrl",
            [
                fastrl("fastrl", variants(learning)[:2], _trainer),
                sample_factory("train", "breakout", [f"{f} {one_epoch}" for f in sf_lanes[:2]]),
            ],
        ),
        "train4": Task(
            "Training APPO on Breakout, 4 epochs, minibatches of 256 steps",
            "frames/s",
            FRAMES,
            "fastrl",
            [
                fastrl(
                    "fastrl", variants(replace(learning, epochs=4, minibatches=4))[:2], _trainer
                ),
                sample_factory("train", "breakout", [f"{f} {four_epochs}" for f in sf_lanes[:2]]),
            ],
        ),
        "null": Task(
            f"Null environment and model, {c} workers x {NULL_LANES} environments",
            "steps/s",
            1,
            "fastrl",
            [
                fastrl("fastrl", [null], _null_sampler),
                fastrl("fastrl, frames copied and gathered", variants(full)[:2], _null_sampler),
                alone("ceiling", partial(ceiling_program, c, NULL_LANES)),
                sample_factory("sample", "null", [f"{sf_null} {plain}"]),
            ],
        ),
        "emulated": Task(
            f"{EMULATED_WORKERS} workers x {EMULATED_LANES} environments that sleep "
            f"{STEP_US:g} us a step",
            "steps/s",
            1,
            "sleeping alone",
            [
                alone("sleeping alone", partial(sleep_program, STEP_US, EMULATED_WORKERS)),
                fastrl("fastrl", [emulated], _emulated_sampler),
                alone(
                    "ceiling", partial(ceiling_program, EMULATED_WORKERS, EMULATED_LANES, STEP_US)
                ),
                sample_factory("sample", "sleep", [f"{sf_emulated} {plain}"]),
            ],
        ),
    }
