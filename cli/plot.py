"""A picture of what an agent expects and does."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from sampler.errors import ConfigError
from sampler.evaluation import Decision

COMPONENTS = 8  # of an action, that are drawn
BINS = 40  # of real numbers


class Plot:
    """Draws values over time, and how often each action was taken, when it is left."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError for a path that cannot be a picture."""
        if path.suffix != ".png" or not path.parent.is_dir():
            raise ConfigError(f"plot={str(path)!r} must end in .png, in a folder that exists")
        self.path = path
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
            _draw_actions(axes, column)
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


def _draw_actions(axes: Any, taken: np.ndarray) -> None:
    """Bars: the share of each choice, or of each range of real numbers."""
    if np.issubdtype(taken.dtype, np.floating):
        axes.hist(taken, bins=BINS, weights=np.full(len(taken), 1 / len(taken)))
    else:
        choices, counts = np.unique(taken, return_counts=True)
        axes.bar(choices, counts / len(taken))
        axes.set_xticks(choices)
    axes.set_ylabel("share of steps")
