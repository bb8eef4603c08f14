from __future__ import annotations

import shutil
import subprocess

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


def test_pictures_of_another_size_are_scaled_to_the_first(tmp_path):
    path = tmp_path / "game.mp4"
    with Video(path) as video:
        for n in range(50):
            height, width = ((64, 96), (30, 50), (128, 96), (65, 97), (96, 64))[n % 5]
            video(Showing(np.full((height, width, 3), 4 * n, np.uint8)))
    film = cv2.VideoCapture(str(path))
    pictures = [film.read()[1] for _ in range(50)]
    assert {picture.shape for picture in pictures} == {(64, 96, 3)}
    np.testing.assert_allclose([p.mean() for p in pictures], 4 * np.arange(50), atol=5)


def test_a_film_is_vp9_in_an_mp4_file(tmp_path):
    path = tmp_path / "game.mp4"
    with Video(path) as video:
        video(Showing(np.zeros((64, 64, 3), np.uint8)))
    content = path.read_bytes()
    assert content[4:8] == b"ftyp"
    assert b"vp09" in content  # the name of the codec in the description of the track


PAGE = """<video src="game.mp4" muted></video><p>unfinished</p><script>
const film = document.querySelector("video"), text = document.querySelector("p");
onload = () => text.textContent = film.error ? film.error.message
    : `${film.videoWidth}x${film.videoHeight}, ${film.duration} s, state ${film.readyState}`;
</script>"""
HAVE_ENOUGH_DATA = 4  # to play to the end


@pytest.mark.slow
def test_a_browser_plays_it(tmp_path):
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("needs chromium")
    with Video(tmp_path / "game.mp4") as video:
        for level in range(30):
            video(Showing(np.full((210, 160, 3), 8 * level, np.uint8)))
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    options = ["--headless", "--no-sandbox", "--disable-gpu"]
    command = [browser, *options, f"--user-data-dir={tmp_path}/profile", "--dump-dom", str(page)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert f"<p>160x210, 2 s, state {HAVE_ENOUGH_DATA}</p>" in shown


def test_a_vector_environment_shows_its_first_lane(tmp_path):
    lanes = tuple(np.full((64, 64, 3), level, np.uint8) for level in (200, 10))
    with Video(tmp_path / "lanes.mp4") as video:
        video(Showing(lanes))
    assert cv2.VideoCapture(str(tmp_path / "lanes.mp4")).read()[1].mean() > 150


def test_an_environment_without_pictures_is_one_line(tmp_path):
    with Video(tmp_path / "x.mp4") as video, pytest.raises(FastrlError, match="renders no RGB"):
        video(Showing(None))


@pytest.mark.parametrize("name", ["game.gif", "nowhere/game.mp4"])
def test_a_path_that_cannot_work_is_one_line(tmp_path, name):
    with pytest.raises(ConfigError, match=r"must end in \.mp4"):
        Video(tmp_path / name)
