from __future__ import annotations

from functools import partial

import cv2
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from matplotlib import pyplot

from cli.plot import ActionComponent, Plot, action_components, components, components_of, shares
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


def test_actions_that_were_never_taken_have_a_share_of_nothing():
    choices, share = shares(np.array([3, 1, 3, 3]), range(1, 6))
    assert choices.tolist() == [1, 2, 3, 4, 5]
    assert share.tolist() == [0.25, 0, 0.75, 0, 0]
    choices, share = shares(np.array([3, 1, 3, 3]), None)
    assert (choices.tolist(), share.tolist()) == ([1, 3], [0.25, 0.75])


def test_every_number_of_an_action_is_known_from_its_space():
    space = spaces.Dict(
        {
            "a": spaces.Discrete(3, start=-1),
            "b": spaces.MultiDiscrete([2, 4]),
            "c": spaces.MultiBinary(1),
            "d": spaces.Box(-1, 1, (2,), np.float32),
        }
    )
    ranges = [component.choices for component in components_of(space)]
    assert ranges == [range(-1, 2), range(2), range(4), range(2), None, None]


def test_actions_have_the_names_that_the_environment_gives():
    (action,) = action_components("BreakoutNoFrameskip-v4", {})
    assert action == ActionComponent(range(4), ("NOOP", "FIRE", "RIGHT", "LEFT"))
    assert action_components("CartPole-v1", {}) == [ActionComponent(range(2))]
    vector = partial(gym.make_vec, "CartPole-v1", num_envs=2)
    assert action_components(vector, {}) == [ActionComponent(range(2))]


def test_names_and_actions_never_taken_are_drawn(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    with Plot(
        tmp_path / "game.png", [ActionComponent(range(3), ("left", "stay", "right"))]
    ) as plot:
        for number in range(4):
            plot(decision(number, np.int64(2 * (number % 2))))
    (figure,) = drawn
    axes = figure.axes[1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["left", "stay", "right"]
    assert [bar.get_height() for bar in axes.patches] == [0.5, 0, 0.5]


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
