"""An environment whose observations say exactly which lane, episode and step they belong to.

Everything the sampler stored can then be checked element by element: nothing is lost, duplicated,
mixed up between lanes or half written.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from sampler.envs.frames import FRAME_SHAPE, FrameEnv

ACTIONS = 4
FIELDS = 4
"""int64 numbers in an observation: lane, episode, step, and the action that led here (-1: none)."""
FRAME_COPIES = FRAME_SHAPE[0] * FRAME_SHAPE[1] // (8 * FIELDS)


def counter_reward(lane: Any, episode: Any, step: Any) -> Any:
    """Reward for arriving at `step` of `episode` in `lane`: a whole number from -500 to 500.

    Takes numbers or arrays; exact in float32.
    """
    return (lane % 997 * 31 + episode % 997 * 7 + step) % 1001 - 500


def decode(observation: np.ndarray) -> np.ndarray:
    """The fields [..., 4] int64 (lane, episode, step, action) of observations.

    `observation` is int64 [..., 4 * copies] or uint8 frames [..., 84, 84].
    """
    return _copies(observation)[..., 0, :]


def intact(observation: np.ndarray) -> np.ndarray:
    """bool [...]: whether all copies of the fields in each observation agree (no tearing)."""
    copies = _copies(observation)
    return (copies == copies[..., :1, :]).all((-1, -2))


def _copies(observation: np.ndarray) -> np.ndarray:
    """Every copy of the fields in `observation`: int64 [..., copies, 4]."""
    if observation.dtype == np.uint8:
        flat = observation.reshape(*observation.shape[:-2], -1)[..., : 8 * FIELDS * FRAME_COPIES]
        observation = np.ascontiguousarray(flat).view(np.int64)
    return observation.reshape(*observation.shape[:-1], -1, FIELDS)


def make_counter(
    min_length: int = 1, max_length: int = 40, copies: int = 1, frames: bool = False
) -> gym.Env:
    """A `CounterEnv`, or with `frames=True` a `CounterFrames`; `copies` only applies to the
    former."""
    if frames:
        return CounterFrames(min_length, max_length)
    return CounterEnv(min_length, max_length, copies)


class Counter:
    """Position of one lane: its episode and step, and when and how the present episode will end.

    The lane is the last seed that was given. Lengths are uniform in [`min_length`, `max_length`]
    steps, and an episode ends by termination or truncation with equal probability.
    """

    def __init__(self, min_length: int, max_length: int) -> None:
        if not 1 <= min_length <= max_length:
            raise ValueError(f"need 1 <= min_length={min_length} <= max_length={max_length}")
        self._lengths = (min_length, max_length + 1)
        self._length = 0
        self._terminates = False
        self.fields = np.array([0, -1, 0, -1], np.int64)

    def begin(self, seed: int | None, rng: np.random.Generator) -> None:
        """Start the next episode; a seed starts the lane again."""
        lane, episode, _, _ = self.fields
        self.fields[:] = (lane, episode + 1, 0, -1) if seed is None else (seed, 0, 0, -1)
        self._length = int(rng.integers(*self._lengths))
        self._terminates = bool(rng.integers(2))

    def advance(self, action: Any) -> tuple[float, bool, bool]:
        """One step: reward, terminated, truncated."""
        fields = self.fields
        fields[2] += 1
        fields[3] = action
        lane, episode, step, _ = fields.tolist()
        done = step >= self._length
        reward = float(counter_reward(lane, episode, step))
        return reward, done and self._terminates, done and not self._terminates


class CounterEnv(gym.Env[np.ndarray, Any]):
    """Observations are `copies` copies of the fields, int64 [4 * copies]."""

    def __init__(self, min_length: int = 1, max_length: int = 40, copies: int = 1) -> None:
        bounds = np.iinfo(np.int64)
        self.observation_space = gym.spaces.Box(
            bounds.min, bounds.max, (FIELDS * copies,), np.int64
        )
        self.action_space = gym.spaces.Discrete(ACTIONS)
        self._copies = copies
        self._counter = Counter(min_length, max_length)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._counter.begin(seed, self.np_random)
        return np.tile(self._counter.fields, self._copies), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, terminated, truncated = self._counter.advance(action)
        return np.tile(self._counter.fields, self._copies), reward, terminated, truncated, {}


class CounterFrames(FrameEnv):
    """Observations are 84x84 uint8 frames filled with the fields' bytes, over and over."""

    def __init__(self, min_length: int = 1, max_length: int = 40) -> None:
        super().__init__(ACTIONS)
        self._counter = Counter(min_length, max_length)

    def reset_into(self, out: np.ndarray, seed: int | None = None) -> dict[str, Any]:
        self._seed(seed)
        self._counter.begin(seed, self.np_random)
        self._write(out)
        return {}

    def step_into(self, action: Any, out: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        reward, terminated, truncated = self._counter.advance(action)
        self._write(out)
        return reward, terminated, truncated, {}

    def _write(self, out: np.ndarray) -> None:
        out.reshape(-1)[:] = np.resize(self._counter.fields.view(np.uint8), out.size)
