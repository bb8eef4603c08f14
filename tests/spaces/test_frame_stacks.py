from __future__ import annotations

import numpy as np
import pytest
import torch

from sampler.spaces import frame_stacks

AGE = np.array([[0, 1, 2, 3, 4, 0, 1], [7, 0, 0, 1, 2, 3, 4]], np.int32)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_frames_older_than_the_episode(size):
    missing = frame_stacks.before_episode(AGE, size)
    assert missing.shape == (2, 7, size)
    for age, row in zip(AGE.ravel(), missing.reshape(-1, size), strict=True):
        assert row.sum() == max(size - 1 - age, 0)
        assert (row == np.sort(row)[::-1]).all()  # the oldest ones
    tensors = frame_stacks.before_episode(torch.from_numpy(AGE), size)
    np.testing.assert_array_equal(tensors.numpy(), missing)


@pytest.mark.parametrize("zeros", [False, True])
def test_gathered_stacks_are_those_of_whole_rows(zeros):
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 255, (2, 3 + 7, 3, 2), np.uint8)
    stacks = frame_stacks.assemble(rows, AGE, 4)
    frames = np.concatenate((rows.reshape(-1, 3, 2), np.zeros((1, 3, 2), np.uint8)))
    row, step = np.array([1, 0, 0, 1]), np.array([6, 0, 3, 2])
    out = np.full((4, 4, 3, 2), 9, np.uint8)
    zero_frame = len(frames) - 1 if zeros else None
    frame_stacks.gather(frames, row * 10 + step, AGE[row, step], out, zero_frame)
    np.testing.assert_array_equal(out, stacks[row, step])


def test_stacks_that_are_moved_on_frame_by_frame_are_the_same():
    frames = np.random.default_rng(0).integers(1, 255, (7, 3, 2), np.uint8)
    row = np.concatenate((np.zeros((3, 3, 2), np.uint8), frames))[None]
    expected = frame_stacks.assemble(row, AGE[:1], 4)[0]
    moving = np.zeros((1, 4, 3, 2), np.uint8)
    for frame, age, stack in zip(frames, AGE[0], expected, strict=True):
        frame_stacks.make_room(moving)
        moving[:, -1] = frame
        if age == 0:
            frame_stacks.forget(moving[0])
        np.testing.assert_array_equal(moving[0], stack)
