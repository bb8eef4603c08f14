from __future__ import annotations

import cv2
import numpy as np
import pytest

from cli.video import Video
from sampler.envs.null import NullEnv
from sampler.errors import ConfigError, FastrlError


class Showing(NullEnv):
    metadata = {"render_fps": 60}  # noqa: RUF012
    frame_skip = 4

    def __init__(self, picture):
        super().__init__()
        self.picture = picture

    def render(self):
        return self.picture


def test_pictures_become_a_film_at_the_speed_of_the_game(tmp_path):
    path = tmp_path / "game.mp4"
    with Video(path) as video:
        for level in range(20):
            video(Showing(np.full((210, 160, 3), 10 * level, np.uint8)))
    film = cv2.VideoCapture(str(path))
    assert film.get(cv2.CAP_PROP_FRAME_COUNT) == 20
    assert film.get(cv2.CAP_PROP_FPS) == 15
    assert film.get(cv2.CAP_PROP_FRAME_WIDTH) == 160
    levels = [film.read()[1].mean() for _ in range(20)]
    np.testing.assert_allclose(levels, 10 * np.arange(20), atol=4)


def test_colours_are_not_swapped(tmp_path):
    red = np.zeros((64, 64, 3), np.uint8)
    red[..., 0] = 200
    with Video(tmp_path / "red.mp4") as video:
        video(Showing(red))
    blue, _, as_red = cv2.VideoCapture(str(tmp_path / "red.mp4")).read()[1].mean(axis=(0, 1))
    assert as_red > 150 > 50 > blue


def test_an_environment_without_pictures_is_one_line(tmp_path):
    with Video(tmp_path / "x.mp4") as video, pytest.raises(FastrlError, match="renders no RGB"):
        video(Showing(None))


@pytest.mark.parametrize("name", ["game.gif", "nowhere/game.mp4"])
def test_a_path_that_cannot_work_is_one_line(tmp_path, name):
    with pytest.raises(ConfigError, match=r"must end in \.mp4"):
        Video(tmp_path / name)
