"""Lanes whose environments can be brought back to where they were, in another process.

Environments cannot be saved in general, but their seeds and actions can: an environment that gets
the same seed and the same actions again reaches the same state. To keep the actions few, a lane is
seeded anew when a whole game has ended and many steps were made since the last seeding.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from sampler.errors import RAISED, StateError, one_line
from sampler.rollout_worker.lanes import Lanes, StepResult
from sampler.rollout_worker.separate_lanes import EnvLanes
from sampler.rollout_worker.vector_lanes import VectorLanes
from sampler.spaces import leaves

RESEED_STEPS = 5_000
"""Steps after which a lane is seeded anew when its game ends. Seeding may cost much more than a
plain reset (Atari loads its game again), and bringing a lane back costs as many steps."""


class ReplayableLanes(Lanes):
    """Lanes that can be saved and restored."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """What is needed to bring the environments back, as arrays; views of memory that
        changes."""

    @abstractmethod
    def load_state_dict(
        self, state: dict[str, Any], observations: list[np.ndarray], mask: np.ndarray | None
    ) -> None:
        """Bring the environments to where `state_dict()` was taken.

        observations, mask: the last ones that they had shown, arrays [lanes, ...]. Raises
        StateError if the environments do not show the same again.
        """


class ActionLog:
    """The actions of every lane since it was last seeded, in arrays that grow."""

    def __init__(self, lanes: int, action_space: gym.Space) -> None:
        self.counts = np.zeros(lanes, np.int64)
        self._lanes = np.arange(lanes)
        self._leaves = leaves(action_space, "actions")
        self._allocate(64)

    def _allocate(self, capacity: int) -> None:
        head = len(self.counts), capacity
        self._arrays = [np.zeros(head + leaf.shape, leaf.dtype) for leaf in self._leaves]

    def add(self, actions: list[np.ndarray]) -> None:
        """Append one action to every lane: leaves [lanes, ...]."""
        if self.counts.max() == self._arrays[0].shape[1]:
            self._arrays = [np.concatenate((a, np.zeros_like(a)), axis=1) for a in self._arrays]
        for array, leaf in zip(self._arrays, actions, strict=True):
            array[self._lanes, self.counts] = leaf
        self.counts += 1

    def clear(self, lane: int) -> None:
        """Forget the actions of a lane."""
        self.counts[lane] = 0

    def replay(
        self, lanes: Lanes, rows: slice, observations: list[np.ndarray], mask: np.ndarray | None
    ) -> None:
        """Reset `lanes` and repeat the actions of the recorded lanes `rows`, which have equally
        many.

        observations, mask: the last ones that `rows` had shown. Raises StateError if `lanes` do not
        show the same again.
        """
        last = [array[rows] for array in observations]
        shown = [np.zeros_like(array)[:, None] for array in last]
        masks = None
        if mask is not None:
            last.append(mask[rows])
            masks = np.zeros_like(mask[rows])[:, None]
        try:
            lanes.reset(shown, 0, masks)
            for step in range(int(self.counts[rows][0])):
                lanes.step([array[rows, step] for array in self._arrays], shown, 0, masks, 0)
        except RAISED as error:
            raise StateError(f"played again, the game failed ({one_line(error)})") from error
        if masks is not None:
            shown.append(masks)
        for now, before in zip(shown, last, strict=True):
            check(np.array_equal(now[:, 0], before, equal_nan=before.dtype.kind == "f"))

    def state_dict(self) -> dict[str, Any]:
        """Lengths [lanes], and the leaves of the actions of all lanes, one lane after the other."""
        used = np.arange(self._arrays[0].shape[1]) < self.counts[:, None]
        return {"counts": self.counts, "actions": [array[used] for array in self._arrays]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict()`."""
        self.counts[:] = state["counts"]
        self._allocate(max(64, int(self.counts.max())))
        used = np.arange(self._arrays[0].shape[1]) < self.counts[:, None]
        for array, saved in zip(self._arrays, state["actions"], strict=True):
            array[used] = saved


class ReplayableEnvLanes(EnvLanes, ReplayableLanes):
    """Separate environments; `self.seeds` are those last used."""

    def __init__(
        self,
        envs: list[gym.Env],
        seeds: list[int],
        heartbeat: memoryview,
        first_lane: int,
        masked: bool,
        new_seed: Callable[[int, int], int],
    ) -> None:
        """`new_seed`: from the lane's number, and how often it was seeded before (at least 1)."""
        super().__init__(envs, seeds, heartbeat, first_lane, masked)
        self.log = ActionLog(len(envs), self.action_space)
        self.seedings = np.zeros(len(envs), np.int64)  # not counting the first
        self.game_over = np.zeros(len(envs), bool)  # and no new game begun
        self._new_seed = new_seed
        self._masked = masked

    def step(
        self,
        actions: list[np.ndarray],
        observations: list[np.ndarray],
        at: int,
        mask: np.ndarray | None,
        mask_at: int,
    ) -> StepResult:
        self.log.add(actions)
        result = super().step(actions, observations, at, mask, mask_at)
        for lane, _, _, game_over in result.ended:
            self.game_over[lane] = game_over
        return result

    def _reset_lane(
        self,
        lane: int,
        observations: list[np.ndarray],
        at: int,
        mask: np.ndarray | None,
        mask_at: int,
        seed: int | None,
    ) -> None:
        if self.game_over[lane] and self.log.counts[lane] > RESEED_STEPS:
            self.seedings[lane] += 1
            seed = self._new_seed(self.first_lane + lane, int(self.seedings[lane]))
            self.seeds[lane] = seed
        if seed is not None:
            self.log.clear(lane)
        self.game_over[lane] = False
        super()._reset_lane(lane, observations, at, mask, mask_at, seed)

    def state_dict(self) -> dict[str, Any]:
        return {
            "log": self.log.state_dict(),
            "seeds": self.seeds,
            "seedings": self.seedings,
            "restart": np.array(self.restart),
            "game_over": self.game_over,
        }

    def load_state_dict(
        self, state: dict[str, Any], observations: list[np.ndarray], mask: np.ndarray | None
    ) -> None:
        self.log.load_state_dict(state["log"])
        self.seeds = list(state["seeds"])
        self.seedings[:], self.game_over[:] = state["seedings"], state["game_over"]
        for lane, (env, seed) in enumerate(zip(self.envs, self.seeds, strict=True)):
            single = EnvLanes([env], [seed], self.heartbeat, self.first_lane + lane, self._masked)
            self.log.replay(single, slice(lane, lane + 1), observations, mask)
            check(single.restart == [state["restart"][lane]])
            self.restart[lane] = single.restart[0]


class ReplayableVectorLanes(VectorLanes, ReplayableLanes):
    """A vector environment: it resets its lanes itself and cannot be seeded anew for one of them,
    so everything since its beginning is played again."""

    def __init__(
        self,
        env: gym.vector.VectorEnv,
        seeds: list[int],
        heartbeat: memoryview,
        first_lane: int,
        mode: AutoresetMode | None = None,
    ) -> None:
        super().__init__(env, seeds, heartbeat, first_lane, mode)
        self.log = ActionLog(env.num_envs, self.action_space)

    def step(
        self,
        actions: list[np.ndarray],
        observations: list[np.ndarray],
        at: int,
        mask: np.ndarray | None,
        mask_at: int,
    ) -> StepResult:
        self.log.add(actions)
        return super().step(actions, observations, at, mask, mask_at)

    def state_dict(self) -> dict[str, Any]:
        return {"log": self.log.state_dict(), "restart": self.restart}

    def load_state_dict(
        self, state: dict[str, Any], observations: list[np.ndarray], mask: np.ndarray | None
    ) -> None:
        self.log.load_state_dict(state["log"])
        again = VectorLanes(self.env, self.seeds, self.heartbeat, self.first_lane, self.mode)
        self.log.replay(again, slice(None), observations, mask)
        check(np.array_equal(again.restart, state["restart"]))
        self.restart, self.kept, self.mode = again.restart, again.kept, again.mode


def check(same: bool) -> None:
    """Raise StateError unless an environment did the same as before."""
    if not same:
        raise StateError(
            "played again, the game went another way: it depends on more than its seed"
        )
