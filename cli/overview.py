"""What --help alone prints: the most used flags and examples, at once.

The full list comes from the settings' dataclasses, and those from torch, which takes seconds to
load. So the few lines here are text; a test holds their defaults to those of the dataclasses.
"""

from __future__ import annotations

from collections.abc import Sequence

HELP = ("-h", "--help")
ALL = "--help-all"

TRAIN = """\
usage: fastrl-train --env ENV [flags]

Train an agent: rollout workers step environments, policy workers choose actions in batches, and a
learner improves the policy, all at the same time.

the most used flags (defaults for --env CartPole-v1 --algo appo):
  --env ID                  Gymnasium id, or module:id; needed
  --algo NAME               appo, ppo, impala, a2c, r2d2, apex or dqn (default: appo)
  --workers N               rollout workers, processes (default: 2)
  --envs-per-worker N       environments in each rollout worker (default: 8)
  --total-steps N           agent steps at which the run ends (default: 500000; images: 10000000)
  --total-seconds S         seconds of training after which it ends (default: no limit)
  --learner.learning-rate X step size of the optimiser (default: that of the preset)
  --eval-every N            agent steps between two evaluations; 0: none (default: 0)
  --seed N                  root of every random stream (default: 0)
  --resume RUN              run to go on with: its folder, its name, or latest

examples:
  fastrl-train --env CartPole-v1
  fastrl-train --env BreakoutNoFrameskip-v4 --workers 32 --eval-every 500000
  fastrl-train --resume latest --total-steps 20000000

all flags, in groups:
  fastrl-train --env ENV --algo ALGO --help     with the defaults of the preset for these
  fastrl-train --help-all                       with those of appo on small tasks
"""

EVALUATE = """\
usage: fastrl-eval [RUN] [flags]

Play a run's checkpoint, without learning, and print raw whole-game scores.

  RUN                  run folder, or its name in --run-dir (default: latest)
  --run-dir FOLDER     folder that holds the run folders (default: runs)
  --checkpoint WHICH   latest, best (by --eval-every), or a checkpoint's file (default: latest)
  --episodes N         whole games in all; every lane plays as many (default: 10)
  --lanes N            environments side by side (default: 5)
  --greedy             take the most likely actions (the default)
  --sampled            draw actions from the policy
  --max-game-steps N   agent steps in which a game must end (default: 1000000)
  --seed N             root of the evaluation's own random streams (default: 0)
  --video FILE         film of the first lane, .mp4 (default: none)
  --plot FILE          values and actions of the first lane, .png (default: none)

examples:
  fastrl-eval
  fastrl-eval runs/latest --checkpoint best --episodes 20
  fastrl-eval runs/latest --video game.mp4 --plot game.png
"""


def asks_for_overview(arguments: Sequence[str]) -> bool:
    """Whether `arguments` ask for help and for nothing else."""
    return len(arguments) == 1 and arguments[0] in HELP


def with_full_help(arguments: Sequence[str]) -> list[str]:
    """`arguments` with --help-all as --help, which the parser knows."""
    return [HELP[-1] if argument == ALL else argument for argument in arguments]
