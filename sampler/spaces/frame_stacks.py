"""Stacks of an observation's last S frames, made from frames that are stored once.

A row keeps its frames in the order of time, S-1 of them from before its first step, so that the
stack of step t is frames t .. t+S-1, oldest first. A frame that is older than the episode is zeros.
`age` is the number of steps since the episode began.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def before_episode(age: Any, frame_stack: int) -> Any:
    """Which frames of the stacks are older than the episode: bool [..., S] for `age` [...].

    numpy or torch as given.
    """
    missing = frame_stack - 1 - age  # frames, counted from the oldest
    if isinstance(age, np.ndarray):
        return np.arange(frame_stack) < missing[..., None]
    import torch

    return torch.arange(frame_stack, device=age.device) < missing[..., None]


def assemble(frames: Any, age: Any, frame_stack: int) -> Any:
    """All stacks of whole rows.

    frames: [B, S-1 + T+1, H, W]; age: int [B, T+1]. Returns [B, T+1, S, H, W] of the frames' dtype,
    numpy or torch as given.
    """
    steps = age.shape[1]
    parts = [frames[:, position : position + steps] for position in range(frame_stack)]
    stacks: Any
    if isinstance(frames, np.ndarray):
        stacks = np.stack(parts, axis=2)
    else:
        import torch

        stacks = torch.stack(parts, dim=2)
    stacks[before_episode(age, frame_stack)] = 0
    return stacks


def gather(
    frames: np.ndarray,
    oldest: np.ndarray,
    age: np.ndarray,
    out: np.ndarray,
    zero_frame: int | None = None,
) -> None:
    """Copy single stacks to `out` [n, S, H, W].

    frames: [m, H, W], the frames of all rows. oldest: int [n], where in them each stack begins.
    age: int [n]. zero_frame: where in them a frame of zeros is, which saves a pass over `out`.
    """
    frame_stack = out.shape[1]
    index = oldest[:, None] + np.arange(frame_stack)
    missing = before_episode(age, frame_stack)
    if zero_frame is not None:
        index[missing] = zero_frame
    # "clip" lets take write straight to `out`; indices are always in range.
    frames.take(index.ravel(), axis=0, out=out.reshape(-1, *out.shape[2:]), mode="clip")
    if zero_frame is None:
        out[missing] = 0


def make_room(stacks: np.ndarray) -> None:
    """Drop the oldest frame of `stacks` [n, S, ...]; the caller writes the newest to the last
    place."""
    stacks[:, :-1] = stacks[:, 1:]


def forget(stack: np.ndarray) -> None:
    """Begin an episode: only the newest frame of `stack` [S, ...] is left."""
    stack[:-1] = 0
