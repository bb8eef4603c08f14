"""The compiled kernel gives OpenCV's pixels."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from sampler.envs.atari import CLASSIC, AtariEnv, _emulator, _rom
from sampler.envs.screens import CompiledScreens, OpenCVScreens, make_screens
from sampler.errors import ConfigError

kernel_module = pytest.importorskip("sampler.envs._preprocess", reason="extension not built")


class FakeEmulator:
    """An emulator whose screen is whatever the test puts there."""

    def __init__(self, palette, height=210, width=160):
        self.palette = palette
        self.screen = np.zeros((height, width), np.uint8)
        self.grayscale_reads = 0

    def getScreen(self, out):
        out[...] = self.screen

    def getScreenGrayscale(self, out):
        self.grayscale_reads += 1
        out[...] = self.palette[self.screen]


def both(ale, size=84):
    height, width = ale.screen.shape
    return (
        OpenCVScreens(ale, height, width, size),
        CompiledScreens(ale, height, width, size),
    )


def random_walk(rng, ale, changed_rows):
    """Change a few random pixels, whole rows, or nothing, of `ale.screen`."""
    height, width = ale.screen.shape
    for row in rng.integers(height, size=changed_rows):
        begin, end = np.sort(rng.integers(width + 1, size=2))
        ale.screen[row, begin:end] = rng.integers(256)
        if rng.random() < 0.3 and row:
            ale.screen[row] = ale.screen[row - 1]


@pytest.mark.parametrize("size", [84, 64, 80, 96, 100, 128, 159, 160])
def test_random_screens_equal_opencv(size):
    rng = np.random.default_rng(size)
    ale = FakeEmulator(rng.integers(256, size=256).astype(np.uint8))
    oracle, kernel = both(ale, size)
    expected, frame = np.zeros((2, size, size), np.uint8)
    for _ in range(20):
        ale.screen = rng.integers(256, size=ale.screen.shape).astype(np.uint8)
        oracle.earlier(), kernel.earlier()
        ale.screen = rng.integers(256, size=ale.screen.shape).astype(np.uint8)
        oracle.finish(expected), kernel.finish(frame)
        np.testing.assert_array_equal(frame, expected)


@pytest.mark.parametrize("height", [210, 250])
def test_any_order_of_calls_equals_opencv(height):
    rng = np.random.default_rng(height)
    ale = FakeEmulator(rng.integers(256, size=256).astype(np.uint8), height)
    oracle, kernel = both(ale)
    expected, frame = np.zeros((2, 84, 84), np.uint8)
    oracle.first(expected), kernel.first(frame)
    for _ in range(400):
        call = rng.choice(["step", "step", "step", "cut", "repeat", "first"])
        random_walk(rng, ale, rng.integers(6))
        if call in ("step", "cut"):
            oracle.earlier(), kernel.earlier()
        random_walk(rng, ale, rng.integers(6))
        if call == "step":
            oracle.finish(expected), kernel.finish(frame)
        elif call == "first":
            oracle.first(expected), kernel.first(frame)
        else:  # the game ended: a new one follows
            getattr(oracle, call)(expected), getattr(kernel, call)(frame)
            np.testing.assert_array_equal(frame, expected)
            oracle.first(expected), kernel.first(frame)
        np.testing.assert_array_equal(frame, expected)


@pytest.mark.parametrize("value", range(0, 256, 15))
def test_flat_screens_and_sharp_edges_equal_opencv(value):
    ale = FakeEmulator(np.arange(256, dtype=np.uint8))
    oracle, kernel = both(ale)
    expected, frame = np.zeros((2, 84, 84), np.uint8)
    for screen in (
        np.full((210, 160), value),
        np.indices((210, 160)).sum(0) % 2 * value,
        np.where(np.arange(160) < value, 255, value) * np.ones((210, 1), int),
        np.where(np.arange(210) < value, 255, value)[:, None] * np.ones((1, 160), int),
    ):
        ale.screen[...] = screen
        oracle.first(expected), kernel.first(frame)
        np.testing.assert_array_equal(frame, expected)


def test_palette_is_read_only_where_a_colour_is_new():
    ale = FakeEmulator(np.arange(255, -1, -1, dtype=np.uint8))
    kernel = CompiledScreens(ale, 210, 160, 84)
    frame = np.zeros((84, 84), np.uint8)
    kernel.first(frame)
    assert ale.grayscale_reads == 1
    ale.screen[100, 50] = 7
    kernel.earlier(), kernel.finish(frame)
    assert ale.grayscale_reads == 2
    ale.screen[10, 5] = 7
    kernel.earlier(), kernel.finish(frame)
    assert ale.grayscale_reads == 2
    ale.screen[20] = 9
    kernel.earlier(), kernel.finish(frame)
    assert ale.grayscale_reads == 3
    expected = cv2.resize(ale.palette[ale.screen], (84, 84), interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(frame, expected)


@pytest.mark.parametrize("game", ["breakout", "riverraid", "enduro", "ms_pacman"])
def test_one_gray_per_palette_index(game):
    """What the kernel learns is a function: an index always has the same gray in a game."""
    ale = _emulator(CLASSIC)
    ale.loadROM(_rom(game))
    raw, gray = np.zeros((2, 210, 160), np.uint8)
    grays = np.full(256, -1)
    rng = np.random.default_rng(0)
    for t in range(300):
        ale.act(rng.choice(ale.getMinimalActionSet()))
        if t % 10 == 0:
            ale.getScreen(raw)
            ale.getScreenGrayscale(gray)
            known = grays[raw] >= 0
            np.testing.assert_array_equal(grays[raw][known], gray[known])
            grays[raw] = gray
            np.testing.assert_array_equal(grays[raw], gray)


def test_kernel_checks_what_it_is_given():
    kernel = kernel_module.Kernel(210, 160, 84, 84)
    screen = np.zeros((210, 160), np.uint8)
    frame = np.zeros((84, 84), np.uint8)
    with pytest.raises(ValueError, match="need a buffer of 33600 bytes, got 7056"):
        kernel.earlier(frame)
    with pytest.raises(ValueError, match="need a buffer of 7056 bytes, got 33600"):
        kernel.finish(screen, screen)
    with pytest.raises(TypeError, match="takes 2 arguments, got 1"):
        kernel.finish(screen)
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        kernel.repeat(np.zeros((84, 168), np.uint8)[:, ::2])
    frame.flags.writeable = False
    with pytest.raises((BufferError, ValueError), match=r"read-only|not writable"):
        kernel.repeat(frame)


def test_other_sizes_fall_back_to_opencv():
    ale = FakeEmulator(np.arange(256, dtype=np.uint8))
    for size in (48, 200):
        assert isinstance(make_screens(ale, 210, 160, size, "auto"), OpenCVScreens)
        with pytest.raises(ConfigError, match="use backend='opencv'"):
            make_screens(ale, 210, 160, size, "compiled")
    assert isinstance(make_screens(ale, 210, 160, 84, "auto"), CompiledScreens)
    assert isinstance(make_screens(ale, 210, 160, 84, "opencv"), OpenCVScreens)
    frame, _ = AtariEnv("pong", backend="auto").reset(seed=0)
    assert frame.any()
