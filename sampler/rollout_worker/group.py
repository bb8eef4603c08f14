"""One group of lanes: its environments, its rows, and its request to the policy worker."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from sampler.errors import RAISED, EnvError, FastrlError, one_line
from sampler.rollout_worker.games import Game, GameScores
from sampler.rollout_worker.lanes import Lanes, StepResult
from sampler.rollout_worker.likeness import LikenessCheck
from sampler.rollout_worker.previous import PreviousInputs
from sampler.rollout_worker.replayable import ReplayableLanes
from sampler.rollout_worker.request import Request
from sampler.rollout_worker.rows import Block, RowFiller
from sampler.rollout_worker.values import ValueCheck
from sampler.shm.shared import Shared
from sampler.shm.tokens import NONE


class Group:
    """Steps the lanes of a group and keeps their rows, games and request up to date.

    It is always in one of two states: it has no rows (`token` is NONE), or it has asked for the
    actions of `step` and waits for them.
    """

    def __init__(self, index: int, lanes: Lanes, shared: Shared, values: ValueCheck):
        self.index = index
        self.lanes = lanes
        self.shared = shared
        self.spec = shared.spec
        self.lane_ids = shared.topology.lanes_of_group(index)
        self.filler = RowFiller(shared.store, self.lane_ids)
        self.request = Request(shared, index)
        self.games = GameScores(len(self.lane_ids))
        self.likeness: LikenessCheck | None = None
        self._values = values
        self._previous = PreviousInputs(self.spec) if self.spec.previous else None
        self._newest = self.spec.frame_stack  # entry of observation t+1, counted from t
        self._episode_ids = np.zeros(len(self.lane_ids), np.int64)
        self.token = NONE
        self._block: Block | None = None
        self._row = 0  # rows begun since the lanes' state was last unbroken
        self.step = 0
        self.real_steps = 0  # in the rows in progress, without repeated steps and resets

    def start(self) -> None:
        """Reset the lanes; their first observations wait in the carry for the first rows."""
        carry = self.filler.carry
        observations = [carry[name] for name in self.spec.observation_fields]
        try:
            self.lanes.reset(observations, -1, carry.get("action_mask"))
        except FastrlError:
            raise
        except RAISED as error:
            raise EnvError(one_line(error)) from error
        carry["age"][:, -1] = 0
        # A game that was over before its first step does not count.
        nothing = np.zeros((len(self.lane_ids), 0), np.float32)
        self.games.finished(self.lanes.result, carry["age"][:, -1], nothing)
        for lane in range(len(self.lane_ids)):
            self._episode_ids[lane] = self._next_episode(lane)

    def _next_episode(self, lane: int) -> int:
        identifier = int(self.shared.lane_episodes[self.lane_ids[lane]])
        self.shared.lane_episodes[self.lane_ids[lane]] = identifier + 1
        return identifier

    # ---- beginning rows

    def claim(self) -> bool:
        """Ask for rows and begin them; False if the group has to wait for them."""
        return self._accept(self.shared.tokens.claim(self.index))

    def look_for_rows(self) -> bool:
        """Begin the rows granted to the waiting group; False if there are none yet."""
        return self._accept(self.shared.tokens.granted(self.index))

    def _accept(self, token: int) -> bool:
        self.token = token
        if token == NONE:
            return False
        self._begin_rows()
        return True

    def _begin_rows(self) -> None:
        self._block = self.filler.block(self.token)
        self.real_steps = 0
        self.step = self.filler.begin(self._block, self._episode_ids)
        self.request.begin(self.token, self.step, self._row)

    # ---- steps

    def ask(self) -> None:
        """Publish the request for the actions of the current step; the caller rings the bell."""
        self.request.ask(self.step)

    def advance(self) -> StepResult:
        """Step every lane once with the actions that have come, and record what happened."""
        block, t = self._block, self.step
        assert block is not None
        actions = [leaf[:, t] for leaf in block.actions]
        try:
            result = self.lanes.step(
                actions, block.observations, t + self._newest, block.action_mask, t + 1
            )
        except FastrlError:
            raise
        except RAISED as error:
            raise EnvError(one_line(error)) from error
        self.filler.record(block, t, result)
        for lane in result.resets:
            self._episode_ids[lane] = self._next_episode(lane)
            self.filler.begin_episode(block, lane, t, int(self._episode_ids[lane]))
        if self._previous is not None:
            began = [lane for lane, *_ in result.began]
            self._previous.write(block, t, result.resets + began)
        self.real_steps += len(self.lane_ids) - result.masked_steps
        self.step = t + 1
        return result

    def finished_games(self, result: StepResult) -> list[Game]:
        """The games that ended in the step that had this result."""
        block = self._block
        assert block is not None
        recent = self.filler.fresh_rewards(block, self.step)
        return self.games.finished(result, block.age[:, self.step], recent)

    def begin_episode(self, lane: int) -> None:
        """Begin the next episode of `lane` with the observation just written: its last one ended in
        the same step, and `finished_games` has been told."""
        block = self._block
        assert block is not None
        episode_id = self._episode_ids[lane] = self._next_episode(lane)
        masked = self.filler.begin_episode_at_once(block, lane, self.step - 1, episode_id)
        self.games.scores[lane] += masked  # removed from the row, but still part of the score

    # ---- ending rows

    def finish(self) -> bool:
        """Check and hand over the full rows; False if they had been given up meanwhile."""
        block = self._block
        assert block is not None
        self._check(block)
        if self.likeness is not None:
            self.likeness.add(self.lane_ids.start, block.arrays, self.filler.overlapping)
            if self.likeness.done:
                self.likeness = None
        self.games.add(self.filler.fresh_rewards(block, self.step))
        self.filler.end(block)
        self._row += 1
        return self.shared.tokens.finish(self.token)

    def cut(self) -> int:
        """Discard the half-filled rows and continue from here in new ones; returns the steps
        lost."""
        block = self._block
        assert block is not None
        self.games.add(self.filler.fresh_rewards(block, self.step))
        self.filler.cut(block, self.step)
        self._row = 0
        return self.real_steps

    def restart_rows(self) -> int:
        """Begin the same rows again from the current observation; returns the steps lost."""
        lost = self.cut()
        self._begin_rows()
        return lost

    def _check(self, block: Block) -> None:
        """Refuse values outside the spaces before they are learned from."""
        fault = self._values.fault(block.rewards, block.observations, self.lane_ids.start)
        if fault is None:
            return
        worker = self.index // self.shared.topology.groups_per_worker
        # The lane that errors name.
        self.shared.counters.rollout[worker]["lane"] = self.lane_ids[fault.lane]
        raise EnvError(f"{fault.what} (step {fault.step} of the row); {fault.remedy}")

    # ---- saving and restoring

    def state_dict(self) -> dict[str, Any]:
        """The group's state outside the shared memory; its lanes must be replayable.

        Arrays are those in use, not copies.
        """
        return {
            "episode_ids": self._episode_ids,
            **self.games.state_dict(),
            "token": self.token,
            "row": self._row,
            "step": self.step,
            "real_steps": self.real_steps,
            "overlapping": self.filler.overlapping,
            "carry": self.filler.carry,
            "lanes": cast(ReplayableLanes, self.lanes).state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict()`; the shared memory must already be restored.

        Raises StateError if the environments cannot be brought back.
        """
        self._episode_ids[:] = state["episode_ids"]
        self.games.load_state_dict(state)
        self.token, self._row, self.step = state["token"], state["row"], state["step"]
        self.real_steps = state["real_steps"]
        self.filler.overlapping = state["overlapping"]
        self.filler.carry.update(state["carry"])
        self.request.synchronize()
        # Where the last observations are: in the rows at hand, or kept for the next ones.
        arrays, at, newest = self.filler.carry, -1, -1
        if self.token != NONE:
            self._block = self.filler.block(self.token)
            arrays, at, newest = self._block.arrays, self.step, self.step + self._newest - 1
        mask = arrays.get("action_mask")
        cast(ReplayableLanes, self.lanes).load_state_dict(
            state["lanes"],
            [arrays[name][:, newest] for name in self.spec.observation_fields],
            None if mask is None else mask[:, at],
        )
