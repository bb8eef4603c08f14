"""What one environment says about itself."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym


@dataclass(frozen=True)
class EnvironmentFacts:
    """What one environment says about itself."""

    observation_space: gym.Space
    action_space: gym.Space
    frame_stack: int
    frame_skip: int
    action_mask_size: int
    vector_lanes: int
    """Environments in a vector environment; 0 for a single one."""
