from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import DependencyNotInstalled

from cli.rendering import check_rendering
from sampler.errors import ConfigError, EnvError


class Silent(gym.Env):
    """Renders what `picture` is, if it can be made for that at all."""

    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, picture=None):
        self.picture = picture

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def render(self):
        if isinstance(self.picture, Exception):
            raise self.picture
        return self.picture


def rendering(picture):
    return lambda render_mode=None: Silent(picture)


@pytest.mark.parametrize("env", ["fastrl/Null-v0", Silent])
def test_an_environment_that_is_not_made_for_rendering_is_one_line(env):
    with pytest.raises(ConfigError, match=r"cannot render: TypeError.*evaluate it without --video"):
        check_rendering(env, {})


@pytest.mark.parametrize("picture", [None, "text", np.zeros((4, 4)), np.zeros((4, 4, 3))])
def test_what_is_no_picture_is_refused(picture):
    with pytest.raises(ConfigError, match="renders no RGB pictures; evaluate it without"):
        check_rendering(rendering(picture), {})


def test_pictures_pass():
    check_rendering(rendering(np.zeros((4, 4, 3), np.uint8)), {})
    check_rendering("BreakoutNoFrameskip-v4", {})


def test_a_missing_library_is_named_with_the_extra_that_has_it():
    error = DependencyNotInstalled("pygame is not installed")
    with pytest.raises(ConfigError) as caught:
        check_rendering(rendering(error), {})
    assert "cannot render: DependencyNotInstalled: pygame is not installed" in str(caught.value)
    assert 'pip install "fastrl[video]"' in str(caught.value)


def test_a_failure_of_rendering_is_one_line():
    with pytest.raises(ConfigError, match=r"cannot render: RuntimeError: no display; evaluate it"):
        check_rendering(rendering(RuntimeError("no display")), {})


def test_an_environment_that_cannot_be_made_at_all_has_its_own_error():
    def broken(**_):
        raise RuntimeError("no game")

    with pytest.raises(EnvError, match="could not be made: RuntimeError: no game"):
        check_rendering(broken, {})
