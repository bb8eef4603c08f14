"""A group that is one `gymnasium.vector.VectorEnv`.

Such an environment steps all of its lanes at once. If it resets a lane in the step that ends an
episode (or never resets, so that we must do it before the next step), there is no step left in
which the policy could see the final observation of that lane alone:

* If the episodes of all lanes have ended, nothing has to wait. Their final observations are
  written, and the next step writes the first observations, which were kept, without stepping the
  environment.
* Otherwise the first observation takes the place of the final one (`StepResult.began`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from sampler.errors import EnvError
from sampler.rollout_worker.autoreset import declared_mode, mode_at_end
from sampler.rollout_worker.given_scores import given_score
from sampler.rollout_worker.lanes import Lanes, StepResult, close, for_environment, unpack
from sampler.rollout_worker.masks import OF_PARTS, find_mask, write_mask
from sampler.rollout_worker.observations import ObservationWriter, checked_array
from sampler.rollout_worker.vector_infos import (
    entry,
    final_entry,
    final_observation,
    has_final_observations,
    of_lane,
)
from sampler.spaces import flatten, unflatten
from sampler.spaces.actions import to_env


@dataclass(frozen=True)
class Beginning:
    """First observations of lanes; only those of lanes that were reset are meaningful."""

    observation: Any
    """Nested like the space, arrays [L, ...]."""
    info: dict[str, Any]


class VectorLanes(Lanes):
    """A group that is one `gymnasium.vector.VectorEnv`."""

    def __init__(
        self,
        env: gym.vector.VectorEnv,
        seeds: list[int],
        heartbeat: memoryview,
        first_lane: int = 0,
        mode: AutoresetMode | None = None,
    ):
        """`heartbeat[0]` is set to `first_lane` when the group is stepped. `mode`: how the
        environment was seen to reset; None: as it declares, or else as the first end of an episode
        shows."""
        self.mode = declared_mode(env) if mode is None else mode
        self.heartbeat = heartbeat
        self.first_lane = first_lane
        self.env = env
        self.seeds = seeds
        self.space = env.single_observation_space
        self.writer = ObservationWriter(self.space)
        self.action_space = env.single_action_space
        self.to_env = to_env(self.action_space)
        self.restart = np.zeros(env.num_envs, bool)
        """Lanes that the next step resets."""
        self.kept: Beginning | None = None
        """What that step writes, if all lanes have been reset already."""
        self.result = StepResult([0.0] * env.num_envs)

    def reset(self, observations: list[np.ndarray], at: int, mask: np.ndarray | None) -> None:
        self.heartbeat[0] = self.first_lane
        self.restart[:] = False
        self.kept = None
        returned = self.env.reset(seed=seed_of(self.env, self.seeds))  # type: ignore[arg-type]
        observation, info = unpack(returned, 2, "reset")
        self._write(observation, observations, at)
        if mask is not None:
            self._write_masks(mask[:, -1], observation, info, self.restart)
        self.result.clear()
        self._note_resets(self.result.reset_games, range(len(self.restart)), info)

    def step(
        self,
        actions: list[np.ndarray],
        observations: list[np.ndarray],
        at: int,
        mask: np.ndarray | None,
        mask_at: int,
    ) -> StepResult:
        self.heartbeat[0] = self.first_lane
        result, reset = self.result, self.restart
        result.clear()
        masks = None if mask is None else mask[:, mask_at]
        if self.kept is not None:
            return self._begin_kept(self.kept, observations, at, masks)
        leaves_taken = for_environment(self.action_space, self.to_env, actions)
        batch = unflatten(self.action_space, leaves_taken)
        observation, rewards, terminated, truncated, info = unpack(self.env.step(batch), 5, "step")
        self._check(rewards, terminated, truncated, info)
        ended = (np.asarray(terminated, bool) | np.asarray(truncated, bool)) & ~reset
        self._write(observation, observations, at)
        if masks is not None:
            final = ended if self.mode is not AutoresetMode.SAME_STEP else np.zeros_like(ended)
            self._write_masks(masks, observation, info, final)
        if self.infos is not None:
            self.infos.vector_step(info, reset, ended)
        result.rewards = np.where(reset, 0.0, rewards).tolist()
        result.resets = np.flatnonzero(reset).tolist()
        self._note_resets(result.reset_games, result.resets, info)
        self.restart = np.zeros_like(reset)
        if ended.any():
            for lane in np.flatnonzero(ended).tolist():
                self._note_end(lane, bool(terminated[lane]), bool(truncated[lane]), info)
            self.mode = mode_at_end(self.mode, info, ended)
            if self.mode is AutoresetMode.NEXT_STEP:
                self.restart = ended
            else:
                self._begin(ended, observation, info, observations, at, masks)
        return result

    def _begin(
        self,
        ended: np.ndarray,
        observation: Any,
        info: dict[str, Any],
        observations: list[np.ndarray],
        at: int,
        masks: np.ndarray | None,
    ) -> None:
        """Handle ends of episodes in an environment that does not reset lanes in its next step.

        ended: bool [L]. observation, info: returned by the step that ended the episodes.
        """
        disabled = self.mode is AutoresetMode.DISABLED
        lanes = np.flatnonzero(ended).tolist()
        first = Beginning(observation, info)
        if disabled:
            options = {"reset_mask": ended.copy()}
            first = Beginning(*unpack(self.env.reset(options=options), 2, "reset"))
        if ended.all() and (disabled or has_final_observations(info, ended)):
            self.restart, self.kept = ended, first
            if not disabled:
                for lane in lanes:
                    mask = final_entry(info, "action_mask", lane)
                    final = final_observation(info, lane)
                    self._write_lane(lane, final, mask, observations, at, masks, final=True)
            return
        for lane in lanes:
            if disabled:
                mask = entry(first.info, "action_mask", lane)
                begun = of_lane(first.observation, lane)
                self._write_lane(lane, begun, mask, observations, at, masks)
            self.result.began.append((lane, *reset_score(first.info, lane)))

    def _write_lane(
        self,
        lane: int,
        observation: Any,
        mask: Any,
        observations: list[np.ndarray],
        at: int,
        masks: np.ndarray | None,
        final: bool = False,
    ) -> None:
        """Write the observation of one lane alone, and its action mask if the info has one."""
        self.writer.write(observation, observations, lane, at)
        if masks is not None:
            given = find_mask(observation, {"action_mask": mask})
            write_mask(masks[lane], self.action_space, given, final)

    def _begin_kept(
        self,
        kept: Beginning,
        observations: list[np.ndarray],
        at: int,
        masks: np.ndarray | None,
    ) -> StepResult:
        """The step of lanes that have all been reset already; the environment is not stepped."""
        result = self.result
        self._write(kept.observation, observations, at)
        if masks is not None:
            self._write_masks(masks, kept.observation, kept.info, np.zeros_like(self.restart))
        result.rewards = [0.0] * len(self.restart)
        result.resets = list(range(len(self.restart)))
        self._note_resets(result.reset_games, result.resets, kept.info)
        self.restart = np.zeros_like(self.restart)
        self.kept = None
        return result

    def _check(self, rewards: Any, terminated: Any, truncated: Any, info: Any) -> None:
        parts = {"rewards": rewards, "terminated": terminated, "truncated": truncated}
        for name, part in parts.items():
            if np.shape(part) != self.restart.shape:  # numpy would silently broadcast it
                raise EnvError(
                    f"step() returned {name} of shape {np.shape(part)}, not {self.restart.shape}; "
                    "return one for each lane"
                )
        if not isinstance(info, dict):
            raise EnvError(
                f"step() returned info of type {type(info).__name__}; return one dict for all lanes"
            )

    def _note_end(self, lane: int, terminated: bool, truncated: bool, info: dict[str, Any]) -> None:
        game_over = truncated or bool(final_entry(info, "game_over", lane, True))
        self.result.ended.append((lane, terminated, truncated, game_over))
        # A wrapper around the whole vector environment puts its statistics outside final_info.
        episode = final_entry(info, "episode", lane, entry(info, "episode", lane))
        if (score := given_score(episode)) is not None:
            self.result.given_scores[lane] = score

    def _note_resets(
        self, games: list[tuple[int, float, bool]], lanes: Any, info: dict[str, Any]
    ) -> None:
        """Add those of `lanes` in whose reset a game was played."""
        if "reset_reward" in info or "game_over" in info:
            for lane in lanes:
                score, game_over = reset_score(info, lane)
                if score or game_over:
                    games.append((lane, score, game_over))

    def _write(self, observation: Any, observations: list[np.ndarray], at: int) -> None:
        parts = flatten(self.space, observation)
        for leaf, part, target in zip(self.writer.leaves, parts, observations, strict=True):
            target[:, at] = checked_array(leaf, part, (len(target), *leaf.shape))

    def _write_masks(
        self, target: np.ndarray, observation: Any, info: dict[str, Any], ended: np.ndarray
    ) -> None:
        """Copy the action masks [L, A]; `ended` [L]: lanes in which no action follows."""
        masks = find_mask(observation, info)
        if isinstance(masks, tuple | list) and not isinstance(self.action_space, OF_PARTS):
            masks = np.asarray(masks)  # one for each lane
        # which lanes have one, if Gymnasium combined them
        given = info.get("_action_mask", np.ones(len(target), bool))
        for lane, lane_target in enumerate(target):
            mask = of_lane(masks, lane) if masks is not None and given[lane] else None
            write_mask(lane_target, self.action_space, mask, bool(ended[lane]))

    def close(self) -> None:
        close(self.env)


def reset_score(info: dict[str, Any], lane: int) -> tuple[float, bool]:
    """The score made in a lane's reset, and whether the game ended in it."""
    score = float(entry(info, "reset_reward", lane, 0.0))
    return score, bool(entry(info, "game_over", lane, False))


def seed_of(env: gym.vector.VectorEnv, seeds: list[int]) -> int | list[int]:
    """The seed for `reset` of a vector environment: a list with one per lane, or the first of
    consecutive ones.

    Gymnasium's interface allows one number or None. Its two vector environments made of separate
    environments also take a list, which gives every lane a stream of its own.
    """
    of_envs = gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv
    return seeds if isinstance(env.unwrapped, of_envs) else seeds[0]
