"""Playing a checkpoint of a run and printing its scores: what fastrl-eval does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from cli.command_line import parse
from cli.exits import StopSignals
from cli.game_counter import GameCounter
from cli.run_folder import find_run
from sampler.errors import ConfigError

if TYPE_CHECKING:
    from sampler.evaluation import Evaluation

PROG = "fastrl-eval"
DESCRIPTION = "Play a run's checkpoint, without learning, and print raw whole-game scores."


@dataclass(frozen=True)
class EvaluateOptions:
    """What is played, and how."""

    run: Positional[str] = "latest"
    """Run folder, or its name in run_dir."""
    run_dir: str = "runs"
    """Folder that holds the run folders."""
    checkpoint: str = "latest"
    """latest, best (by evaluation while training), or a checkpoint's name or file."""
    episodes: int = 10
    """Whole games in all; every lane plays as many, its first ones."""
    lanes: int = 5
    """Environments side by side."""
    max_game_steps: int = 1_000_000
    """Agent steps in which a game must end; a longer one is an error."""
    sampled: bool = False
    """Draw actions from the policy; --greedy, the default, takes the most likely ones."""
    seed: int = 0
    """Root of the evaluation's own random streams."""
    video: Path | None = None
    """File to write a video of the first lane to, .mp4; the environment must render."""
    plot: Path | None = None
    """File to draw the first lane's values and actions to, .png."""

    def __post_init__(self) -> None:
        for name, least in (("episodes", 1), ("lanes", 1), ("max_game_steps", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least {least}")


def evaluate_run(arguments: Sequence[str], signals: StopSignals) -> None:
    """Parse the flags, play, print. Raises ConfigError and FastrlError."""
    given = ["--no-sampled" if argument == "--greedy" else argument for argument in arguments]
    chosen = parse(EvaluateOptions(), given, PROG, DESCRIPTION)
    folder = find_run(chosen.run, chosen.run_dir)

    import torch  # not at the top: it takes seconds, which --help does not need

    from cli.options import saved_options

    # Threads gain nothing on a few observations, and on busy cores they wait for one another.
    torch.set_num_threads(1)
    options = saved_options(folder)
    state, file = _load(folder, chosen.checkpoint)
    print(f"{folder.name}: {file.name}, {state['steps']:,} steps", flush=True)
    with ExitStack() as stack:
        video = plot = None
        if chosen.video is not None:
            from cli.rendering import check_rendering
            from cli.video import Video

            video = stack.enter_context(Video(chosen.video))
            check_rendering(options.environment.env, options.environment.kwargs())
        if chosen.plot is not None:
            from cli.plot import Plot, action_components

            action = action_components(options.environment.env, options.environment.kwargs())
            plot = stack.enter_context(Plot(chosen.plot, action))
        games = stack.enter_context(GameCounter(sys.stderr))
        signals.on_exit = games.close
        result = options.play(
            state,
            episodes=chosen.episodes,
            lanes=chosen.lanes,
            seed=chosen.seed,
            greedy=not chosen.sampled,
            watch=video,
            trace=plot,
            progress=games,
            max_game_steps=chosen.max_game_steps,
        )
    for line in _describe(result, "sampled" if chosen.sampled else "greedy"):
        print(line)


def _load(folder: Path, which: str) -> tuple[dict[str, Any], Path]:
    """The state of a checkpoint of the run in `folder`, and its file."""
    from sampler.learner import checkpoint
    from sampler.learner.checkpoint import CheckpointStore
    from sampler.learner.trainer import STATE

    store = CheckpointStore(
        folder / "checkpoints",
        report=lambda text: print(f"warning: {text}", file=sys.stderr),
        fields=STATE,
    )
    if which == "latest":
        return store.load_latest()
    if which == "best" and not store.best.exists():
        raise ConfigError(
            f"{folder.name} has no best checkpoint: it was trained without --eval-every; "
            "use --checkpoint latest"
        )
    named = store.folder / which  # as they are printed; a path that is absolute stays itself
    file = store.best if which == "best" else named if named.is_file() else Path(which)
    return checkpoint.load(file, fields=STATE), file


def _describe(result: Evaluation, actions: str) -> list[str]:
    scores = " ".join(f"{score:g}" for score in result.scores)
    return [
        f"scores  {scores}",
        f"mean {result.mean:.2f}  std {result.std:.2f}  "
        f"({len(result.scores)} whole games, raw scores, {actions} actions, "
        f"mean length {result.lengths.mean():,.1f} steps)",
    ]
