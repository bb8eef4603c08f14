"""A group of separate `gymnasium.Env`s."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from sampler.envs.frames import direct_frame_env
from sampler.errors import EnvError
from sampler.rollout_worker.given_scores import given_score
from sampler.rollout_worker.lanes import Lanes, StepResult, close, for_environment, unpack
from sampler.rollout_worker.masks import find_mask, write_mask
from sampler.rollout_worker.observations import ObservationWriter
from sampler.spaces import unflatten
from sampler.spaces.actions import to_env


class EnvLanes(Lanes):
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
        # Frames are written in place, by `step_into`, if all environments can do that.
        direct = [frame_env for env in envs if (frame_env := direct_frame_env(env)) is not None]
        self.direct = not masked and len(direct) == len(envs)
        if self.direct:
            self.step_into = [env.step_into for env in direct]
            self.reset_into = [env.reset_into for env in direct]

    def reset(self, observations: list[np.ndarray], at: int, mask: np.ndarray | None) -> None:
        self.result.clear()
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
        result.clear()
        newest, infos = observations[0][:, at], self.infos
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
            if infos is not None:
                infos.step(info, bool(terminated or truncated))
            if terminated is False and truncated is False:
                continue  # as in most steps, which need nothing more
            if terminated or truncated:
                restart[lane] = True
                result.ended.append((lane, *how_it_ended(terminated, truncated, info)))
                if (score := given_score(info.get("episode"))) is not None:
                    result.given_scores[lane] = score
            else:
                check_ends(terminated, truncated)  # numpy's False, or None
        return result

    def _per_lane(self, actions: list[np.ndarray]) -> list[Any]:
        """One action per lane, in the type of its space; never a view of shared memory."""
        if self.discrete:
            return actions[0].tolist()
        columns = [list(leaf) for leaf in for_environment(self.action_space, self.to_env, actions)]
        return [unflatten(self.action_space, parts) for parts in zip(*columns, strict=True)]

    def close(self) -> None:
        for env in self.envs:
            close(env)


def check_ends(terminated: Any, truncated: Any) -> None:
    """Raise EnvError unless both are True or False, or numbers that say as much."""
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if flag not in (0, 1):
            raise EnvError(
                f"step() returned {name}={flag!r} of type {type(flag).__name__}; return a bool"
            )


def how_it_ended(terminated: Any, truncated: Any, info: Any) -> tuple[bool, bool, bool]:
    """Whether an episode was terminated, was truncated, and ended the whole game; all checked.

    An environment may say that its game goes on (`game_over` False, at a lost life). A truncation
    ends the game all the same: the next reset begins another.
    """
    check_ends(terminated, truncated)
    if not isinstance(info, dict):
        raise EnvError(f"step() returned info of type {type(info).__name__}; return a dict")
    game_over = bool(truncated) or bool(info.get("game_over", True))
    return bool(terminated), bool(truncated), game_over
