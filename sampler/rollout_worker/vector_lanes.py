"""A group that is one `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from sampler.errors import ConfigError, EnvError
from sampler.rollout_worker.lanes import StepResult, close, for_environment, unpack
from sampler.rollout_worker.masks import OF_PARTS, find_mask, of_lane, write_mask
from sampler.rollout_worker.observations import checked_array
from sampler.spaces import flatten, leaves, unflatten
from sampler.spaces.actions import to_env


class VectorLanes:
    """A group that is one `gymnasium.vector.VectorEnv`."""

    def __init__(
        self,
        env: gym.vector.VectorEnv,
        seeds: list[int],
        heartbeat: memoryview,
        first_lane: int = 0,
    ):
        """`heartbeat[0]` is set to `first_lane` when the group is stepped."""
        check_autoreset(env)
        self.heartbeat = heartbeat
        self.first_lane = first_lane
        self.env = env
        self.seeds = seeds
        self.space = env.single_observation_space
        self.leaves = leaves(self.space, "obs")
        self.action_space = env.single_action_space
        self.to_env = to_env(self.action_space)
        self.restart = np.zeros(env.num_envs, bool)
        self.result = StepResult([0.0] * env.num_envs)

    def reset(self, observations: list[np.ndarray], at: int, mask: np.ndarray | None) -> None:
        self.heartbeat[0] = self.first_lane
        returned = self.env.reset(seed=self.seeds)  # type: ignore[arg-type]
        observation, info = unpack(returned, 2, "reset")
        self._write(observation, observations, at)
        if mask is not None:
            self._write_masks(mask[:, -1], observation, info, np.zeros_like(self.restart))

    def step(
        self,
        actions: list[np.ndarray],
        observations: list[np.ndarray],
        at: int,
        mask: np.ndarray | None,
        mask_at: int,
    ) -> StepResult:
        self.heartbeat[0] = self.first_lane
        leaves_taken = for_environment(self.action_space, self.to_env, actions)
        batch = unflatten(self.action_space, leaves_taken)
        observation, rewards, terminated, truncated, info = unpack(self.env.step(batch), 5, "step")
        parts = {"rewards": rewards, "terminated": terminated, "truncated": truncated}
        for name, part in parts.items():
            if np.shape(part) != self.restart.shape:  # one value would do for all, silently
                raise EnvError(
                    f"step() returned {name} of shape {np.shape(part)}, not {self.restart.shape}; "
                    "return one for each lane"
                )
        self._write(observation, observations, at)
        ended = (terminated | truncated) & ~self.restart
        if mask is not None:
            self._write_masks(mask[:, mask_at], observation, info, ended)
        result = self.result
        result.rewards = np.where(self.restart, 0.0, rewards).tolist()
        result.resets = np.flatnonzero(self.restart).tolist()
        game_over = info.get("game_over", np.ones(len(ended), bool))
        result.ended = [
            (lane, bool(terminated[lane]), bool(truncated[lane]), bool(game_over[lane]))
            for lane in np.flatnonzero(ended).tolist()
        ]
        self.restart = ended
        return result

    def _write(self, observation: Any, observations: list[np.ndarray], at: int) -> None:
        parts = flatten(self.space, observation)
        for leaf, part, target in zip(self.leaves, parts, observations, strict=True):
            target[:, at] = checked_array(leaf, part, (len(target), *leaf.shape))

    def _write_masks(
        self, target: np.ndarray, observation: Any, info: dict[str, Any], ended: np.ndarray
    ) -> None:
        """Copy the action masks [lanes, A]; `ended` [lanes]: from where no action follows."""
        masks = find_mask(observation, info)
        if isinstance(masks, tuple | list) and not isinstance(self.action_space, OF_PARTS):
            masks = np.asarray(masks)  # one for each lane
        # which lanes have one, where Gymnasium has put them together
        given = info.get("_action_mask", np.ones(len(target), bool))
        for lane, lane_target in enumerate(target):
            mask = of_lane(masks, lane) if masks is not None and given[lane] else None
            write_mask(lane_target, self.action_space, mask, bool(ended[lane]))

    def close(self) -> None:
        close(self.env)


def check_autoreset(env: gym.vector.VectorEnv) -> None:
    """Refuse a vector environment whose final observations would be lost."""
    mode = (env.metadata or {}).get("autoreset_mode")
    name = getattr(mode, "name", str(mode))
    if mode is not None and "NEXT_STEP" not in name.upper():
        raise ConfigError(
            f"the vector environment's autoreset_mode is {name}; make it with "
            "autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP, which keeps the final "
            "observation in the sequence"
        )
