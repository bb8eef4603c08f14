"""A film of what an agent does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2

from cli.rendering import picture_of
from sampler.envs.frames import frame_skip
from sampler.errors import ConfigError, FastrlError

CODEC = "vp09"  # VP9: every browser plays it, and OpenCV's wheels can write it
FRAMES_PER_SECOND = 30  # for environments that do not declare it


class Video:
    """Writes an environment's pictures to an mp4 file, one with each call.

    The environment must have been made with render_mode="rgb_array". The first picture gives the
    film its size; pictures of another size are scaled to it.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError for a path that cannot be an mp4 file."""
        if path.suffix != ".mp4" or not path.parent.is_dir():
            raise ConfigError(f"video={str(path)!r} must end in .mp4, in a folder that exists")
        self.path = path
        self._size = (0, 0)  # width and height
        self._writer: Any = None

    def __call__(self, env: Any) -> None:
        """Add the environment's present picture. Raises ConfigError if it has none."""
        picture = picture_of(env)
        if self._writer is None:
            self._size = picture.shape[1], picture.shape[0]
            self._writer = self._open(env)
        if picture.shape[1::-1] != self._size:
            picture = cv2.resize(picture, self._size, interpolation=cv2.INTER_AREA)
        self._writer.write(cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))

    def _open(self, env: Any) -> Any:
        speed = env.metadata.get("render_fps", FRAMES_PER_SECOND) / frame_skip(env)
        writer = cv2.VideoWriter(str(self.path), cv2.VideoWriter.fourcc(*CODEC), speed, self._size)
        if not writer.isOpened():
            raise FastrlError(
                f"video {self.path} cannot be written; try another folder, or, if this OpenCV "
                'cannot write VP9, pip install "opencv-python-headless"'
            )
        return writer

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.release()

    def __enter__(self) -> Video:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
