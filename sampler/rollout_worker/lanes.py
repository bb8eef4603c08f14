"""The environments of one group, stepped together.

Both kinds follow one protocol: after an episode ends, the next step of that lane ignores its
action and resets (Gymnasium's next-step autoreset), so final observations stay in the sequence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from sampler.errors import RAISED, ConfigError, EnvError, one_line
from sampler.rollout_worker.observations import ObservationWriter, checked_array
from sampler.spaces import flatten, leaves, unflatten
from sampler.spaces.actions import flatten_mask, to_env

logger = logging.getLogger("fastrl")

MASK_MISSING = (
    "no action_mask in this step's info, though the first reset had one; "
    "give it at every reset and step"
)

OF_PARTS = (gym.spaces.Dict, gym.spaces.Tuple, gym.spaces.MultiDiscrete)
"""Action spaces whose masks may be tuples, by part."""


@dataclass
class StepResult:
    """What happened in one step of a group. The same object is used again for every step."""

    rewards: list[float]
    ended: list[tuple[int, bool, bool, bool]] = field(default_factory=list)
    """Lanes whose episode ended: (lane, terminated, truncated, whether the whole game is over)."""
    resets: list[int] = field(default_factory=list)
    """Lanes that were reset instead of stepped."""
    reset_games: list[tuple[int, float, bool]] = field(default_factory=list)
    """Resets in which a game that goes on after a lost life was played: (lane, score made, whether
    the game ended and a new one began)."""


class Lanes(Protocol):
    """A group of environments. `observations` and `action_mask` arguments are arrays
    [lanes, T+1, ...]; `at` is the entry to write (for frames: of the newest frame)."""

    result: StepResult

    def reset(self, observations: list[np.ndarray], at: int, mask: np.ndarray | None) -> None: ...

    def step(
        self,
        actions: list[np.ndarray],
        observations: list[np.ndarray],
        at: int,
        mask: np.ndarray | None,
        mask_at: int,
    ) -> StepResult: ...

    def close(self) -> None: ...


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


def close(env: gym.Env | gym.vector.VectorEnv) -> None:
    """Close an environment; one that fails in that has served its purpose, and is only reported."""
    try:
        env.close()
    except RAISED as error:
        logger.warning("closing an environment failed: %s", one_line(error))


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


def unpack(returned: Any, count: int, method: str) -> Any:
    if isinstance(returned, tuple) and len(returned) == count:
        return returned
    kind = f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
    raise EnvError(
        f"{method}() returned {kind}, not a tuple of {count}; "
        "follow the Gymnasium API (obs, info) and (obs, reward, terminated, truncated, info)"
    )


def for_environment(
    space: gym.Space, convert: Callable[[Any], Any] | None, actions: list[np.ndarray]
) -> list[np.ndarray]:
    """Leaves of the actions [lanes, ...] as the environment takes them: copies, within bounds."""
    copies = [leaf.copy() for leaf in actions]
    if convert is None:
        return copies
    return flatten(space, convert(unflatten(space, copies)))


def find_mask(observation: Any, info: dict[str, Any]) -> Any:
    """The action mask that came with a step: from the info, or else from the observation."""
    mask = info.get("action_mask")
    if mask is None and isinstance(observation, dict):
        mask = observation.get("action_mask")
    return mask


def of_lane(batched: Any, lane: int) -> Any:
    """One lane's part of what a vector environment has put together: nested arrays [lanes, ...]."""
    if isinstance(batched, dict):
        return {key: of_lane(part, lane) for key, part in batched.items()}
    if isinstance(batched, tuple):
        return tuple(of_lane(part, lane) for part in batched)
    return batched[lane]


def write_mask(target: np.ndarray, space: gym.Space, mask: Any, final: bool = False) -> None:
    """Copy an action mask into `target` [A]. The one of an episode's last observation (`final`),
    from which no action follows, may be missing or permit none; then all is permitted."""
    if mask is None and not final:
        raise EnvError(MASK_MISSING)
    target[...] = flatten_mask(space, mask, final)


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
