"""Spaces as flat lists of named leaves, actions, and masks of actions."""

from sampler.spaces.flattening import (
    Leaf,
    flatten,
    leaves,
    map_leaves,
    stack_frames,
    unflatten,
)

__all__ = ["Leaf", "flatten", "leaves", "map_leaves", "stack_frames", "unflatten"]
