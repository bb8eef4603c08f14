"""A film of what an agent does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sampler.envs.frames import frame_skip
from sampler.errors import ConfigError, FastrlError

CODEC = "mp4v"
FRAMES_PER_SECOND = 30  # of environments that do not say


class Video:
    """Writes an environment's pictures to an mp4 file, one for each call.

    The environment must have been made with render_mode="rgb_array".
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError for a path that cannot be an mp4 file."""
        if path.suffix != ".mp4" or not path.parent.is_dir():
            raise ConfigError(f"video={str(path)!r} must end in .mp4, in a folder that exists")
        self.path = path
        self._writer: Any = None

    def __call__(self, env: Any) -> None:
        """Add the picture that the environment shows now."""
        picture = env.render()
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise FastrlError(f"{env} renders no RGB pictures; evaluate it without --video")
        if self._writer is None:
            self._writer = self._open(env, picture)
        self._writer.write(cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))

    def _open(self, env: Any, picture: np.ndarray) -> Any:
        speed = env.metadata.get("render_fps", FRAMES_PER_SECOND) / frame_skip(env)
        size = picture.shape[1], picture.shape[0]
        writer = cv2.VideoWriter(str(self.path), cv2.VideoWriter.fourcc(*CODEC), speed, size)
        if not writer.isOpened():
            raise FastrlError(f"video {self.path} cannot be written; try another folder")
        return writer

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.release()

    def __enter__(self) -> Video:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
