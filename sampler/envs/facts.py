"""What one environment says about itself."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
from gymnasium.vector import AutoresetMode


@dataclass(frozen=True)
class EnvironmentFacts:
    """What one environment says about itself."""

    observation_space: gym.Space
    action_space: gym.Space
    frame_stack: int
    """Frames that the sampler stacks; 1 for all but `FrameEnv`s."""
    frame_skip: int
    """Emulator frames per step; 1 for all but `FrameEnv`s."""
    action_mask_size: int
    """Entries of its action masks; 0: it has no masks."""
    vector_lanes: int
    """Environments in a vector environment; 0 for a single one."""
    autoreset: AutoresetMode | None = None
    """How a vector environment resets; None: it is not one, or it neither declares a mode nor ended
    an episode while it was inspected."""
    slow: str | None = None
    """Why it is slower than it could be, and the remedy, where it says so (`FrameEnv.slow`)."""
