"""A picture of what an agent expects and does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sampler.envs import make
from sampler.errors import ConfigError
from sampler.evaluation import Decision
from sampler.spaces.flattening import leaves

COMPONENTS = 8  # of an action that are drawn
BINS = 40  # for real numbers
MOST_NAMED = 40  # choices labelled one by one; more would be unreadable


@dataclass(frozen=True)
class ActionComponent:
    """One number of an action."""

    choices: range | None = None
    """All its values; None for a real number."""
    names: tuple[str, ...] = ()
    """Of the choices, where the environment has names for them."""


def action_components(
    env: str | Callable[..., Any], env_kwargs: Mapping[str, Any]
) -> list[ActionComponent]:
    """The numbers that make up an action of an environment, which is made for this and closed.

    Raises ConfigError and EnvError if it cannot be made.
    """
    made: Any = make(env, **env_kwargs)
    with closing(made):
        vector = isinstance(made, gym.vector.VectorEnv)
        space = made.single_action_space if vector else made.action_space
        components = components_of(space)
        meanings = None if vector else getattr(made.unwrapped, "get_action_meanings", None)
        names = tuple(map(str, meanings())) if callable(meanings) else ()
    (first, *others) = components
    if names and not others and first.choices is not None and len(names) == len(first.choices):
        return [ActionComponent(first.choices, names)]
    return components


def components_of(space: gym.Space) -> list[ActionComponent]:
    """The numbers that make up an action of a space, leaf by leaf as in a Decision's actions."""
    return [component for leaf in leaves(space, "actions") for component in _numbers(leaf.space)]


def _numbers(space: gym.Space) -> list[ActionComponent]:
    if isinstance(space, spaces.Discrete):
        return [ActionComponent(range(int(space.start), int(space.start + space.n)))]
    if isinstance(space, spaces.MultiDiscrete):
        starts, counts = np.ravel(space.start).tolist(), np.ravel(space.nvec).tolist()
        return [
            ActionComponent(range(start, start + count))
            for start, count in zip(starts, counts, strict=True)
        ]
    count = int(np.prod(space.shape or ()))
    binary = isinstance(space, spaces.MultiBinary)
    return [ActionComponent(range(2) if binary else None)] * count


class Plot:
    """Draws values over time, and how often each action was taken, when it is left."""

    def __init__(self, path: Path, action: Sequence[ActionComponent] = ()) -> None:
        """`action`: its components; without them only the choices that were taken are shown.

        Raises ConfigError for a path that cannot be a picture.
        """
        if path.suffix != ".png" or not path.parent.is_dir():
            raise ConfigError(f"plot={str(path)!r} must end in .png, in a folder that exists")
        self.path = path
        self._action = action
        self._decisions: list[Decision] = []

    def __call__(self, decision: Decision) -> None:
        """Add one decision."""
        self._decisions.append(decision)

    def draw(self) -> None:
        """Write the picture."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        columns = components(self._decisions)[:COMPONENTS]
        known = self._action or [ActionComponent()] * len(columns)
        figure = pyplot.figure(figsize=(10, 6), layout="constrained")
        grid = figure.add_gridspec(2, len(columns))
        values = figure.add_subplot(grid[0, :])
        values.plot([decision.value for decision in self._decisions], linewidth=1)
        for step, decision in enumerate(self._decisions):
            if decision.is_first:
                values.axvline(step, color="grey", linewidth=0.5)
        values.set(xlabel="step (lines: an episode begins)", ylabel="value, in the learner's units")
        for number, column in enumerate(columns):
            axes = figure.add_subplot(grid[1, number])
            _draw_actions(axes, column, known[number])
            axes.set_xlabel("action" if len(columns) == 1 else f"action, component {number}")
        figure.savefig(self.path, dpi=100)
        pyplot.close(figure)

    def __enter__(self) -> Plot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None and self._decisions:
            self.draw()


def components(decisions: list[Decision]) -> list[np.ndarray]:
    """The numbers that make up an action, [decisions] each, leaf by leaf."""
    leaves = zip(*(decision.actions for decision in decisions), strict=True)
    return [column for leaf in leaves for column in np.stack(leaf).reshape(len(leaf), -1).T]


def shares(taken: np.ndarray, choices: range | None) -> tuple[np.ndarray, np.ndarray]:
    """The choices, those never taken included, and the share of steps of each."""
    seen, counts = np.unique(taken, return_counts=True)
    shown = seen if choices is None else np.asarray(choices)
    every = np.zeros(len(shown))
    every[np.searchsorted(shown, seen)] = counts / len(taken)
    return shown, every


def _draw_actions(axes: Any, taken: np.ndarray, component: ActionComponent) -> None:
    """Bars: the share of each choice, or of each range of real numbers."""
    if np.issubdtype(taken.dtype, np.floating):
        axes.hist(taken, bins=BINS, weights=np.full(len(taken), 1 / len(taken)))
    else:
        choices, share = shares(taken, component.choices)
        axes.bar(choices, share)
        if len(choices) <= MOST_NAMED:
            axes.set_xticks(choices, component.names or None)
        if component.names:
            axes.tick_params(axis="x", labelrotation=90)
    axes.set_ylabel("share of steps")
