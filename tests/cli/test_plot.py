from __future__ import annotations

import cv2
import numpy as np
import pytest

from cli.plot import Plot, components
from sampler.errors import ConfigError
from sampler.evaluation import Decision


def decision(number, *actions):
    return Decision(float(number), [np.asarray(action) for action in actions], number % 5 == 0)


def test_actions_are_taken_apart_leaf_by_leaf():
    decisions = [decision(n, np.int64(n), np.float32([n, -n])) for n in range(4)]
    first, *rest = components(decisions)
    assert first.tolist() == [0, 1, 2, 3]
    assert [column.tolist() for column in rest] == [[0, 1, 2, 3], [0, -1, -2, -3]]


def test_decisions_become_a_picture(tmp_path):
    path = tmp_path / "game.png"
    with Plot(path) as plot:
        for number in range(20):
            plot(decision(number, np.int64(number % 3), np.float32([number, 0.5])))
    assert cv2.imread(str(path)).std() > 1


def test_nothing_is_drawn_of_a_failure_or_of_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), Plot(tmp_path / "a.png") as plot:  # noqa: PT012
        plot(decision(0, 1))
        1 / 0  # noqa: B018
    with Plot(tmp_path / "b.png"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["game.jpg", "nowhere/game.png"])
def test_a_path_that_cannot_work_is_one_line(tmp_path, name):
    with pytest.raises(ConfigError, match=r"must end in \.png"):
        Plot(tmp_path / name)
