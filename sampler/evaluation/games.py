"""All lanes of an evaluation: environments, the model's observations, and finished games."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

import gymnasium as gym
import numpy as np

from sampler import seeds
from sampler.envs import make
from sampler.envs.frames import frame_stack
from sampler.errors import RAISED, ConfigError, EnvError, one_line
from sampler.rollout_worker.games import GameScores
from sampler.rollout_worker.lanes import Lanes, close, unpack
from sampler.rollout_worker.rewards import RewardWriter
from sampler.rollout_worker.separate_lanes import EnvLanes
from sampler.rollout_worker.values import ValueCheck
from sampler.rollout_worker.vector_lanes import VectorLanes, seed_of
from sampler.spaces import frame_stacks, leaves, stack_frames
from sampler.spaces.masks import mask_size

MAX_GAME_STEPS = 1_000_000
"""Steps after which a game counts as endless; one of Atari has 27,000 at most."""


@dataclass(frozen=True)
class Evaluation:
    """The games that were played, lane by lane, each lane's in the order of time."""

    scores: np.ndarray
    """Raw whole-game scores, float64 [games]."""
    lengths: np.ndarray
    """Lengths in agent steps, int64 [games]."""

    @property
    def mean(self) -> float:
        """Mean score."""
        return float(self.scores.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the scores (of the population: ddof=0)."""
        return float(self.scores.std())


class Games:
    """All lanes: their environments, the model's observations, and their finished games.

    L is the number of lanes, n of those that still play. Separate environments are stepped one by
    one, and one whose games are over rests; the lanes of a vector environment go on together until
    all are over.
    """

    def __init__(
        self,
        env: str | Callable[..., Any],
        env_kwargs: Mapping[str, Any],
        episodes: int,
        lanes: int,
        seed: int,
        watch: Callable[[Any], None] | None,
        max_game_steps: int = MAX_GAME_STEPS,
    ) -> None:
        self._watch = watch
        self._max_game_steps = max_game_steps
        self.name = env if isinstance(env, str) else getattr(env, "__name__", repr(env))
        self._heartbeat = memoryview(bytearray(8)).cast("q")
        self._envs: list[Any] = []
        try:
            self._make(env, env_kwargs, episodes, lanes, seed)
        except BaseException:
            self.close()
            raise

    def _make(
        self,
        env: str | Callable[..., Any],
        env_kwargs: Mapping[str, Any],
        episodes: int,
        lanes: int,
        seed: int,
    ) -> None:
        first: Any = make(env, **env_kwargs)
        self._envs.append(first)
        vector_lanes = first.num_envs if isinstance(first, gym.vector.VectorEnv) else 0
        single = first.single_observation_space if vector_lanes else first.observation_space
        self.action_space = first.single_action_space if vector_lanes else first.action_space
        self.frame_stack = frame_stack(first)
        self.space = stack_frames(single, self.frame_stack)
        group_size = vector_lanes or 1
        for _ in range(ceil(lanes / group_size) - 1):
            self._envs.append(make(env, **env_kwargs))
        lanes = len(self._envs) * group_size
        lane_seeds = [seeds.integer(seed, seeds.EVALUATION, lane) for lane in range(lanes)]
        mask_size = self._mask_size(first, lane_seeds[:group_size])
        self._values = ValueCheck(leaves(single, "obs"), self.name)
        self._rewards = RewardWriter(group_size)
        self._groups: list[tuple[Lanes, slice, GameScores]] = []
        for index, made in enumerate(self._envs):
            rows = slice(index * group_size, (index + 1) * group_size)
            group: Lanes = (
                VectorLanes(made, lane_seeds[rows], self._heartbeat, rows.start)
                if vector_lanes
                else EnvLanes([made], lane_seeds[rows], self._heartbeat, index, mask_size > 0)
            )
            self._groups.append((group, rows, GameScores(group_size)))
        stack = self.frame_stack  # observations [L, S, ...]: the newest is the last
        self.observations = _zeros(single, "obs", (lanes, stack))
        self.actions = _zeros(self.action_space, "actions", (lanes,))
        self.previous_actions = _zeros(self.action_space, "actions", (lanes,))
        self.previous_rewards = np.zeros(lanes, np.float32)
        self.is_first = np.ones(lanes, bool)
        self.action_mask = np.zeros((lanes, 1, mask_size), bool) if mask_size else None
        self._steps_in_game = np.zeros(lanes, np.int64)
        self.steps = 0
        """Steps made in all lanes so far."""
        self._quota = episodes // lanes + (np.arange(lanes) < episodes % lanes)
        self._ages = np.zeros(lanes, np.int64)  # steps since the lanes' episodes began
        self._finished: list[list[tuple[float, int]]] = [[] for _ in range(lanes)]

    def reset(self) -> None:
        """Begin the first game in every lane."""
        for group, rows, scores in self._groups:
            with self._errors():
                group.reset(*self._views(rows))
            self._check(rows)
            # A game that was over before its first step does not count.
            scores.finished(group.result, self._ages[rows], self.previous_rewards[rows, None])
            self._show(rows)

    def playing(self) -> np.ndarray:
        """The lanes to act for, int [n]: all lanes of every group that has games left to play."""
        left = self._games_finished() < self._quota
        return np.concatenate(
            [np.arange(rows.start, rows.stop) for _, rows, _ in self._groups if left[rows].any()]
            or [np.zeros(0, np.int64)]
        )

    @property
    def finished(self) -> int:
        """Games that are over, of those that count."""
        return int(np.minimum(self._games_finished(), self._quota).sum())

    def _games_finished(self) -> np.ndarray:
        """Finished games of every lane, int [L]."""
        return np.array([len(games) for games in self._finished])

    @property
    def first_lane_decides(self) -> bool:
        """Whether the first lane's action will be played, in a game that counts."""
        result = self._groups[0][0].result
        began = any(lane == 0 for lane, *_ in result.began)
        resets = any(lane == 0 for lane, *_ in result.ended) and not began
        return not resets and len(self._finished[0]) < self._quota[0]

    def step(self, playing: np.ndarray, actions: list[np.ndarray]) -> None:
        """Step the lanes `playing` with `actions`, leaves [n, ...]; ended ones are reset.

        Raises EnvError where an environment fails, or a game does not end in `max_game_steps`.
        """
        before = self._games_finished()
        for array, leaf in zip(self.actions, actions, strict=True):
            array[playing] = leaf
        is_playing = np.zeros(len(self.is_first), bool)
        is_playing[playing] = True
        for group, rows, scores in self._groups:
            if is_playing[rows.start]:
                self._step_group(group, rows, scores)
        self.steps += len(playing)
        self._steps_in_game[playing] += 1
        after = self._games_finished()
        self._steps_in_game[after > before] = 0
        endless = (self._steps_in_game >= self._max_game_steps) & (after < self._quota)
        if endless.any():
            raise EnvError(
                f"env {self.name}, evaluation lane {np.argmax(endless)}: a game was not over after "
                f"max_game_steps={self._max_game_steps:,}; raise it, or have the environment end "
                "its episodes (gymnasium.wrappers.TimeLimit)"
            )

    def _step_group(self, group: Lanes, rows: slice, scores: GameScores) -> None:
        views, at, mask = self._views(rows)
        if self.frame_stack > 1:
            frame_stacks.make_room(views[0])
        with self._errors():
            result = group.step([leaf[rows] for leaf in self.actions], views, at, mask, 0)
            self._rewards.write(result.rewards, self.previous_rewards[rows])
        self._show(rows)
        self.is_first[rows] = False
        for previous, leaf in zip(self.previous_actions, self.actions, strict=True):
            previous[rows] = leaf[rows]
        self._check(rows)
        self._ages[rows] += 1
        for index in result.resets:
            lane = rows.start + index
            self._ages[lane] = 0
            self.is_first[lane] = True
            for previous in self.previous_actions:
                previous[lane] = 0
            if self.frame_stack > 1:
                frame_stacks.forget(self.observations[0][lane])
        rewards = self.previous_rewards[rows, None].copy()
        for lane, score, length in scores.finished(result, self._ages[rows], rewards):
            self._finished[rows.start + lane].append((score, length))
        scores.add(rewards)
        for index, *_ in result.began:
            lane = rows.start + index
            self._ages[lane] = 0
            self.is_first[lane] = True
            self.previous_rewards[lane] = 0
            for previous in self.previous_actions:
                previous[lane] = 0

    def _check(self, rows: slice) -> None:
        """Refuse the values that sampling refuses."""
        newest = [array[rows, -1:] for array in self.observations]
        fault = self._values.fault(self.previous_rewards[rows, None], newest, rows.start)
        if fault is not None:
            lane = rows.start + fault.lane
            raise EnvError(f"env {self.name}, evaluation lane {lane}: {fault.what}; {fault.remedy}")

    def fields(self, lanes: np.ndarray) -> dict[str, np.ndarray]:
        """The inputs of a model for `lanes`, int [n]: arrays [n, ...] by field name."""
        newest = self.frame_stack == 1  # without a stack, the second dimension belongs to the space
        fields = {
            leaf.name: array[lanes, 0] if newest else array[lanes]
            for leaf, array in zip(leaves(self.space, "obs"), self.observations, strict=True)
        }
        previous = leaves(self.action_space, "previous_actions")
        for leaf, array in zip(previous, self.previous_actions, strict=True):
            fields[leaf.name] = array[lanes]
        fields["previous_rewards"] = self.previous_rewards[lanes]
        if self.action_mask is not None:
            fields["action_mask"] = self.action_mask[lanes, 0]
        return fields

    def _show(self, rows: slice) -> None:
        if self._watch is not None and rows.start == 0:
            self._watch(self._envs[0])

    def _views(self, rows: slice) -> tuple[list[np.ndarray], int, np.ndarray | None]:
        """Where a group writes: observations, the entry to write, and action masks."""
        mask = None if self.action_mask is None else self.action_mask[rows]
        return [array[rows] for array in self.observations], self.frame_stack - 1, mask

    def _mask_size(self, env: Any, lane_seeds: list[int]) -> int:
        """Entries of the environment's action masks; 0 without masks."""
        with self._errors():
            is_vector = isinstance(env, gym.vector.VectorEnv)
            seed = seed_of(env, lane_seeds) if is_vector else lane_seeds[0]
            observation, info = unpack(env.reset(seed=seed), 2, "reset")
        given = "action_mask" in info
        if isinstance(observation, dict):
            given = given or "action_mask" in observation
        return mask_size(self.action_space) if given else 0

    def result(self) -> Evaluation:
        """The first games of every lane, as many as it had to play."""
        games = [
            game
            for finished, quota in zip(self._finished, self._quota, strict=True)
            for game in finished[:quota]
        ]
        return Evaluation(
            scores=np.array([score for score, _ in games], np.float64),
            lengths=np.array([length for _, length in games], np.int64),
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Name the environment in every error that it raises."""
        try:
            yield
        except ConfigError:
            raise
        except RAISED as error:
            raise EnvError(
                f"env {self.name}, evaluation lane {self._heartbeat[0]}: {one_line(error)}"
            ) from error

    def close(self) -> None:
        """Close all environments."""
        for env in self._envs:
            close(env)

    def __enter__(self) -> Games:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _zeros(space: gym.Space, name: str, shape: tuple[int, ...]) -> list[np.ndarray]:
    return [np.zeros(shape + leaf.shape, leaf.dtype) for leaf in leaves(space, name)]
