"""From two emulator screens to one frame: grayscale, maximum, area resize.

`OpenCVScreens` and `CompiledScreens` give the same pixels, those of
`gymnasium.wrappers.AtariPreprocessing`; the second is a fused kernel in C (`_preprocess.c`), used
if it was built and supports the size.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal, Protocol

import numpy as np

from sampler.errors import ConfigError

Backend = Literal["auto", "compiled", "opencv"]
NOT_BUILT = (
    "the compiled kernel for Atari frames was not built, so sampling is about a quarter slower; "
    "install a C compiler, such as gcc, and then fastrl once more: "
    "pip install --force-reinstall --no-deps PATH_OF_FASTRL"
)


class Screens(Protocol):
    """Reads the emulator's screen and writes finished frames, uint8 [size, size], into `out`."""

    def read(self) -> np.ndarray:
        """A copy of the present screen, for `first`."""

    def first(self, out: np.ndarray, screen: np.ndarray | None = None) -> None:
        """The screen after a reset alone: `screen`, or the present one."""

    def earlier(self) -> None:
        """Take the screen of the frame before a step's last one."""

    def finish(self, out: np.ndarray) -> None:
        """Take the screen of the step's last frame; the frame is the maximum of the two."""

    def repeat(self, out: np.ndarray) -> None:
        """The game ended before `earlier`: the last frame again."""

    def cut(self, out: np.ndarray) -> None:
        """The game ended between `earlier` and `finish`: the last frame and `earlier`'s."""


class OpenCVScreens:
    """Grayscale screens from the emulator, resized by OpenCV."""

    def __init__(self, ale: Any, height: int, width: int, size: int) -> None:
        import cv2

        cv2.setNumThreads(0)  # threads cost more than they save on one frame
        self._resize = cv2.resize
        self._area = cv2.INTER_AREA
        self._size = (size, size)
        self._read = ale.getScreenGrayscale
        self._pooled, self._earlier = np.zeros((2, height, width), np.uint8)

    def read(self) -> np.ndarray:
        screen = np.empty_like(self._pooled)
        self._read(screen)
        return screen

    def first(self, out: np.ndarray, screen: np.ndarray | None = None) -> None:
        self._pooled[:] = self.read() if screen is None else screen
        self.repeat(out)

    def earlier(self) -> None:
        self._read(self._earlier)

    def finish(self, out: np.ndarray) -> None:
        self._read(self._pooled)
        self.cut(out)

    def repeat(self, out: np.ndarray) -> None:
        self._resize(self._pooled, self._size, dst=out, interpolation=self._area)

    def cut(self, out: np.ndarray) -> None:
        np.maximum(self._pooled, self._earlier, out=self._pooled)
        self.repeat(out)


class CompiledScreens:
    """Raw screens of palette indices, turned into frames by the kernel.

    The kernel learns the palette from the emulator: when a screen shows an index for the first
    time, it asks for the grayscale of that screen.
    """

    def __init__(self, ale: Any, height: int, width: int, size: int) -> None:
        from sampler.envs._preprocess import Kernel

        kernel = Kernel(height, width, size, size)
        self._kernel = kernel
        self._read = ale.getScreen
        self._read_gray = ale.getScreenGrayscale
        self._raw, self._gray = np.zeros((2, height, width), np.uint8)
        self._take_earlier, self._take_last = kernel.earlier, kernel.finish
        self.repeat, self.cut = kernel.repeat, kernel.cut

    def read(self) -> np.ndarray:
        self._read(self._raw)
        self._learn()
        return self._raw.copy()

    def first(self, out: np.ndarray, screen: np.ndarray | None = None) -> None:
        self._kernel.clear()
        if screen is None:
            self.finish(out)
        else:
            self._take_last(screen, out)  # `read` has learned its palette

    def earlier(self) -> None:
        self._read(self._raw)
        if not self._take_earlier(self._raw):
            self._learn()
            self._take_earlier(self._raw)

    def finish(self, out: np.ndarray) -> None:
        self._read(self._raw)
        if not self._take_last(self._raw, out):
            self._learn()
            self._take_last(self._raw, out)

    def _learn(self) -> None:
        self._read_gray(self._gray)
        self._kernel.learn(self._raw, self._gray)


def kernel_built() -> bool:
    """Whether the compiled kernel is there."""
    return find_spec("sampler.envs._preprocess") is not None


def make_screens(ale: Any, height: int, width: int, size: int, backend: Backend) -> Screens:
    """Screens of the emulator `ale`, `height` x `width` pixels, for frames of `size` x `size`.

    Raises ConfigError if `backend="compiled"` is asked for and not available.
    """
    if backend == "opencv":
        return OpenCVScreens(ale, height, width, size)
    try:
        return CompiledScreens(ale, height, width, size)
    except (ImportError, ValueError) as error:
        if backend == "compiled":
            raise ConfigError(
                f"backend='compiled' is not available for {height}x{width} to {size}x{size}: "
                f"{error}; use backend='opencv'"
            ) from error
        return OpenCVScreens(ale, height, width, size)
