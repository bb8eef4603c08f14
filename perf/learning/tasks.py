"""The tasks of `perf.learning`, their commands, and the score that each has to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Curve = tuple[tuple[float, float], ...]
"""Points (agent steps, episodic return)."""


@dataclass(frozen=True)
class Variant:
    """One command of a task, run once per seed, and its bar."""

    flags: str
    """Arguments of fastrl-train, without the seed."""
    at_least: float | None = None
    """Score that every seed has to reach."""
    at_most: float | None = None
    """Score that no seed may exceed: for controls, which lack what the task needs."""

    def meets(self, score: float) -> bool | None:
        """Whether a score meets the bar; None without a bar."""
        if self.at_least is not None:
            return score >= self.at_least
        if self.at_most is not None:
            return score <= self.at_most
        return None

    @property
    def bar(self) -> str:
        """The bar in a table."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return "-"


@dataclass(frozen=True)
class Task:
    """An environment and what is compared on it: one picture."""

    title: str
    variants: Mapping[str, Variant]
    about: str
    """What the picture shows, in a sentence or two."""
    games: int = 100
    """Greedy games that the final weights play."""
    success_above: float | None = None
    """If set, the score is the share of games that return more than this, not their mean."""
    seeds: tuple[int, ...] = (0, 1, 2)
    by_hand: bool = False
    """Takes an hour or more: trained by hand and added with --from-run."""
    reference: Curve = ()
    """A published curve, to be drawn beside ours."""
    reference_name: str = ""


def small(env: str, algo: str, steps: int, more: str = "") -> str:
    """Flags of a run that takes minutes; its curve has a point every second."""
    return f"--env {env} --algo {algo} --total-steps {steps} --log-every 1 {more}".rstrip()


def replayed_rows(init_state: str, burn_in: int) -> str:
    """R2D2 on rows so short that an episode of 52 steps spans six of them."""
    rows = f"--learner.sequence 10 --learner.shift 10 --learner.burn-in {burn_in}"
    return small(
        "fastrl/RepeatFirst-v0", "r2d2", 60_000, f"--learner.init-state {init_state} {rows}"
    )


CLEANRL_PPO_BREAKOUT: Curve = tuple(
    (step * 1e6, score)
    for step, score in (
        (0.5, 10), (1, 19), (1.5, 32), (2, 49), (2.5, 68), (3, 102), (3.5, 133), (4, 151),
        (4.5, 174), (5, 203), (5.5, 224), (6, 263), (6.5, 284), (7, 305), (7.5, 319), (8, 340),
        (8.5, 355), (9, 394), (9.5, 408), (10, 416),
    )
)  # fmt: skip
"""Read off the picture in CleanRL's documentation of ppo_atari.py; mean of three seeds."""

PONG = "--env PongNoFrameskip-v4"
TWO_CORES = "--workers 2 --policy-workers 0 --groups 1"
ATARI_APPO = (
    f"{TWO_CORES} --envs-per-worker 16 --learner.epochs 2 --learner.minibatches 4 "
    "--learner.learning-rate 5e-4 --learner.anneal-learning-rate --learner.entropy-coef 0.01 "
    "--learner.max-grad-norm 0.5"
)
"""APPO with the batches and losses of the published PPO, but half as many updates, since these take
most of the time on two cores."""
ATARI_APEX = (
    f"{TWO_CORES} --algo apex --envs-per-worker 8 --rollout 50 --batch 8 --learner.optimiser adam "
    "--learner.epsilon 1.5e-4 --learner.learning-rate 1.25e-4 --learner.max-grad-norm 10 "
    "--learner.huber 1 --learner.batch-size 64 --learner.target-every 500 "
    "--learner.replay-ratio 4 --learner.learning-starts 10000"
)
"""Ape-X with 16 actors in place of hundreds, and batches that one core can learn from."""
NO_VELOCITY = "fastrl/CartPoleNoVelocity-v0"

TASKS = {
    "cartpole": Task(
        "CartPole-v1, policy gradients",
        {
            "ppo": Variant(small("CartPole-v1", "ppo", 200_000), at_least=475),
            "appo": Variant(small("CartPole-v1", "appo", 200_000), at_least=475),
            "impala": Variant(small("CartPole-v1", "impala", 200_000), at_least=475),
            "a2c": Variant(small("CartPole-v1", "a2c", 500_000), at_least=475),
        },
        "The classic-control presets. A game returns 500 at most.",
    ),
    "cartpole-q": Task(
        "CartPole-v1, Q-learning",
        {
            "dqn": Variant(small("CartPole-v1", "dqn", 50_000), at_least=475),
            "apex": Variant(small("CartPole-v1", "apex", 60_000), at_least=475),
        },
        "The classic-control presets. Curves are of games with exploration, which for Ape-X keeps "
        "some lanes acting at random to the end.",
    ),
    "cartpole-no-velocity": Task(
        "CartPole without velocities",
        {
            "lstm": Variant(small(NO_VELOCITY, "ppo", 300_000, "--model.core lstm"), at_least=400),
            "gru": Variant(small(NO_VELOCITY, "ppo", 300_000, "--model.core gru"), at_least=400),
            "feed-forward": Variant(small(NO_VELOCITY, "ppo", 300_000), at_most=200),
        },
        "Position and angle alone: velocities have to be remembered. Without memory it fails.",
    ),
    "pendulum": Task(
        "Pendulum-v1",
        {"ppo": Variant(small("Pendulum-v1", "ppo", 300_000), at_least=-250)},
        "Continuous actions.",
    ),
    "repeat-first": Task(
        "RepeatFirst",
        {
            "lstm": Variant(
                small("fastrl/RepeatFirst-v0", "appo", 200_000, "--model.core lstm"), at_least=0.9
            ),
            "feed-forward": Variant(small("fastrl/RepeatFirst-v0", "appo", 200_000)),
        },
        "Name the first card of the deck at each of 52 steps: right answers return 1, wrong ones "
        "-1, guesses about -0.5. Rows of 16 steps are shorter than an episode, so the card is "
        "remembered in the stored state.",
    ),
    "workers": Task(
        "CartPole-v1, by number of workers",
        {
            f"{workers} x {16 // workers}": Variant(
                small(
                    "CartPole-v1",
                    "appo",
                    200_000,
                    f"--workers {workers} --envs-per-worker {16 // workers}",
                ),
                at_least=475,
            )
            for workers in (1, 2, 4, 8, 16)
        },
        "Always sixteen environments, divided among the workers, so batches have the same size "
        "for any number of workers. Seeds 1 and 2 ran beside tests that kept both cores busy; "
        "some of these runs took long to leave a plateau near 250, and two had not left it after "
        "200,000 steps.",
    ),
    "precision": Task(
        "bfloat16 inference, CartPole-v1",
        {
            precision: Variant(
                small("CartPole-v1", "appo", 200_000, f"--serial --precision {precision}"),
                at_least=475,
            )
            for precision in ("float32", "bfloat16")
        },
        "In serial mode, so that only the precision differs. It applies to image encoders only: "
        "the vectors of this task are not rounded, and both trainings are equal step for step. "
        "(The curves have a point for each second of training, so their points differ.)",
    ),
    "pong": Task(
        "Pong",
        {
            "appo": Variant(f"{PONG} {ATARI_APPO} --total-steps 5000000", at_least=18),
            "appo in float32": Variant(
                f"{PONG} {ATARI_APPO} --precision float32 --total-steps 5000000"
            ),
            "apex": Variant(f"{PONG} {ATARI_APEX} --total-seconds 3600"),
        },
        "On two cores, with inference in bfloat16 unless stated otherwise. APPO was stopped when "
        "it had learned the game, long before its learning rate would have reached 0; Ape-X "
        "after an hour.",
        games=20,
        seeds=(0,),
        by_hand=True,
    ),
    "breakout": Task(
        "Breakout",
        {
            "appo": Variant(f"--env BreakoutNoFrameskip-v4 {ATARI_APPO} --total-seconds 3600"),
        },
        "One hour on two cores, which is a third of the way to a learning rate of 0, compared "
        "with CleanRL's published PPO at equal steps.",
        games=20,
        seeds=(0,),
        by_hand=True,
        reference=CLEANRL_PPO_BREAKOUT,
        reference_name="CleanRL's PPO",
    ),
    "repeat-previous": Task(
        "RepeatPrevious, k=4",
        {
            "r2d2": Variant(small("fastrl/RepeatPrevious-v0", "r2d2", 60_000), at_least=0.8),
            "without memory": Variant(
                small("fastrl/RepeatPrevious-v0", "r2d2", 60_000, "--model.core None"),
                at_most=-0.3,
            ),
        },
        "Name the card of four steps ago. Guesses return about -0.5.",
    ),
    "stored-state": Task(
        "R2D2: what a replayed row begins with",
        {
            "zero": Variant(replayed_rows("zero", 0)),
            "stored": Variant(replayed_rows("stored", 0)),
            "stored + burn-in": Variant(replayed_rows("stored", 10)),
        },
        "RepeatFirst in rows of 10 learned steps, of which only an episode's first shows the card.",
    ),
    "bitflip": Task(
        "BitFlip, 10 bits",
        {
            "hindsight": Variant(small("fastrl/BitFlip-v0", "dqn", 4_000), at_least=0.9),
            "without": Variant(
                small("fastrl/BitFlip-v0", "dqn", 4_000, "--learner.hindsight none"), at_most=0.2
            ),
        },
        "The score is the share of games that reach the goal; a failed one returns -10.",
        success_above=-10.0,
    ),
}


def choose(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """(task, variant) for every NAME or NAME:VARIANT in `names`; without names, all except those
    trained by hand.

    Raises ValueError for an unknown name.
    """
    chosen = []
    for name in names or (name for name, task in TASKS.items() if not task.by_hand):
        task, _, variant = name.partition(":")
        if task not in TASKS:
            raise ValueError(f"no task {task!r}: there are {', '.join(TASKS)}")
        variants = TASKS[task].variants
        if variant and variant not in variants:
            raise ValueError(f"no variant {variant!r} of {task}: there are {', '.join(variants)}")
        chosen += [(task, variant)] if variant else [(task, each) for each in variants]
    return chosen
