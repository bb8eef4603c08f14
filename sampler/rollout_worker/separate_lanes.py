"""A group of separate `gymnasium.Env`s."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from sampler.errors import EnvError
from sampler.rollout_worker.lanes import StepResult, close, for_environment, unpack
from sampler.rollout_worker.masks import find_mask, write_mask
from sampler.rollout_worker.observations import ObservationWriter
from sampler.spaces import unflatten
from sampler.spaces.actions import to_env


class EnvLanes:
    """A group of separate `gymnasium.Env`s."""

    def __init__(
        self,
        envs: list[gym.Env],
        seeds: list[int],
        heartbeat: memoryview,
        first_lane: int = 0,
        masked: bool = False,
    ):
        """`heartbeat[0]` is set to the lane being stepped or reset, counted from `first_lane`."""
        self.envs = envs
        self.seeds = seeds
        self.heartbeat = heartbeat
        self.first_lane = first_lane
        self.writer = ObservationWriter(envs[0].observation_space)
        self.action_space = envs[0].action_space
        self.discrete = isinstance(self.action_space, gym.spaces.Discrete)
        self.to_env = to_env(self.action_space)
        self.restart = [False] * len(envs)
        self.result = StepResult([0.0] * len(envs))
        self.direct = not masked and all(hasattr(find(env), "step_into") for env in envs)
        if self.direct:
            self.step_into = [find(env).step_into for env in envs]
            self.reset_into = [find(env).reset_into for env in envs]

    def reset(self, observations: list[np.ndarray], at: int, mask: np.ndarray | None) -> None:
        self.result.reset_games.clear()
        for lane, seed in enumerate(self.seeds):
            self._reset_lane(lane, observations, at, mask, -1, seed)

    def _reset_lane(
        self,
        lane: int,
        observations: list[np.ndarray],
        at: int,
        mask: np.ndarray | None,
        mask_at: int,
        seed: int | None,
    ) -> None:
        self.heartbeat[0] = self.first_lane + lane
        if self.direct:
            info = self.reset_into[lane](observations[0][lane, at], seed)
        else:
            observation, info = unpack(self.envs[lane].reset(seed=seed), 2, "reset")
            self.writer.write(observation, observations, lane, at)
            if mask is not None:
                given = find_mask(observation, info)
                write_mask(mask[lane, mask_at], self.action_space, given)
        self.restart[lane] = False
        score, game_over = info.get("reset_reward", 0.0), info.get("game_over", False)
        if score or game_over:
            self.result.reset_games.append((lane, score, bool(game_over)))

    def step(
        self,
        actions: list[np.ndarray],
        observations: list[np.ndarray],
        at: int,
        mask: np.ndarray | None,
        mask_at: int,
    ) -> StepResult:
        result, restart = self.result, self.restart
        rewards = result.rewards
        result.ended.clear()
        result.resets.clear()
        result.reset_games.clear()
        newest = observations[0][:, at]
        for lane, action in enumerate(self._per_lane(actions)):
            if restart[lane]:
                self._reset_lane(lane, observations, at, mask, mask_at, None)
                rewards[lane] = 0.0
                result.resets.append(lane)
                continue
            self.heartbeat[0] = self.first_lane + lane
            if self.direct:
                reward, terminated, truncated, info = self.step_into[lane](action, newest[lane])
            else:
                observation, reward, terminated, truncated, info = unpack(
                    self.envs[lane].step(action), 5, "step"
                )
                self.writer.write(observation, observations, lane, at)
                if mask is not None:
                    given, final = find_mask(observation, info), bool(terminated or truncated)
                    write_mask(mask[lane, mask_at], self.action_space, given, final)
            rewards[lane] = reward
            if terminated or truncated:
                restart[lane] = True
                result.ended.append((lane, *how_it_ended(terminated, truncated, info)))
        return result

    def _per_lane(self, actions: list[np.ndarray]) -> list[Any]:
        """One action per lane, as its space has it; never a view of shared memory."""
        if self.discrete:
            return actions[0].tolist()
        columns = [list(leaf) for leaf in for_environment(self.action_space, self.to_env, actions)]
        return [unflatten(self.action_space, parts) for parts in zip(*columns, strict=True)]

    def close(self) -> None:
        for env in self.envs:
            close(env)


def how_it_ended(terminated: Any, truncated: Any, info: Any) -> tuple[bool, bool, bool]:
    """Whether an episode was terminated, was truncated, and ended the whole game; all checked."""
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if flag not in (0, 1):
            raise EnvError(
                f"step() returned {name}={flag!r} of type {type(flag).__name__}; return a bool"
            )
    if not isinstance(info, dict):
        raise EnvError(f"step() returned info of type {type(info).__name__}; return a dict")
    return bool(terminated), bool(truncated), bool(info.get("game_over", True))


def find(env: gym.Env) -> Any:
    """The environment itself if no wrapper changes it, so that its fast path may be used."""
    while type(env) in (gym.wrappers.OrderEnforcing, gym.wrappers.PassiveEnvChecker):
        env = env.env  # type: ignore[attr-defined]
    return env
