"""Filling the rows of one token, and carrying what the next rows begin with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sampler.rollout_worker.lanes import StepResult
from sampler.rollout_worker.rewards import RewardWriter
from sampler.shm.store import FRAMES, SequenceStore, StoreSpec


@dataclass(frozen=True)
class Block:
    """Views of the rows that a token stands for, every one [lanes, ...]."""

    arrays: dict[str, np.ndarray]
    """All fields, by name."""
    observations: list[np.ndarray]
    """The leaves of the observation space, or the single frames that its stacks are made of."""
    actions: list[np.ndarray]
    """The leaves of the action space."""
    action_mask: np.ndarray | None
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    mask: np.ndarray
    age: np.ndarray
    episode_id: np.ndarray


class RowFiller:
    """Prepares the rows of a group and moves its state from one row to the next.

    Whatever a row shares with the one before it (the last observation with its frame history, and
    `overlap` transitions) is kept in the process's own memory between the two, since the learner
    may release and others may overwrite the old rows before new ones are free.
    """

    def __init__(self, store: SequenceStore, lanes: range):
        self.store = store
        self.spec: StoreSpec = store.spec
        self.lanes = np.arange(lanes.start, lanes.stop)
        self.overlapping = 0  # transitions in the carry: 0 before the first row is finished
        spec = self.spec
        # Entries at the end of each array that the next row begins with.
        self._tails = {s.name: spec.overlap + 1 for s in spec.per_observation()}
        if spec.stacks_frames:
            self._tails[FRAMES] = spec.overlap + spec.frame_stack
        if spec.overlap:
            self._tails |= {s.name: spec.overlap for s in spec.per_transition()}
        self.carry = {
            name: np.zeros((len(lanes), tail) + store[name].shape[3:], store[name].dtype)
            for name, tail in self._tails.items()
        }
        self._ahead = np.arange(1, spec.steps + 1, dtype=np.int32)
        self._rewards = RewardWriter(len(lanes))
        self._blocks: dict[int, Block] = {}

    def block(self, token: int) -> Block:
        """The views of a token's rows; made once per token, since tokens are used again."""
        if token not in self._blocks:
            a = self.store.block(token)
            self._blocks[token] = Block(
                a,
                [a[name] for name in self.spec.observation_fields],
                [a[action.name] for action in self.spec.actions],
                a.get("action_mask"),
                a["rewards"],
                a["terminated"],
                a["truncated"],
                a["mask"],
                a["age"],
                a["episode_id"],
            )
        return self._blocks[token]

    def begin(self, block: Block, episode_ids: np.ndarray) -> int:
        """Start rows with what the last ones ended with; returns the step to continue from.

        Fields that only the end of an episode changes are written for the whole row at once.
        """
        start = self.overlapping
        unused = self.spec.overlap - start
        for name, kept in self.carry.items():
            block.arrays[name][:, : kept.shape[1] - unused] = kept[:, unused:]
        block.arrays["lane_id"][:] = self.lanes
        block.terminated[:, start:] = False
        block.truncated[:, start:] = False
        block.mask[:, start:] = True
        block.episode_id[:, start:] = episode_ids[:, None]
        block.age[:, start + 1 :] = block.age[:, start : start + 1] + self._ahead[: -start or None]
        return start

    def record(self, block: Block, step: int, result: StepResult) -> None:
        """Write the rewards and the ends of the transitions at `step`.

        Raises EnvError for rewards that are not numbers.
        """
        self._rewards.write(result.rewards, block.rewards[:, step])
        for lane, terminated, truncated, _ in result.ended:
            block.terminated[lane, step] = terminated
            block.truncated[lane, step] = truncated

    def fresh_rewards(self, block: Block, step: int) -> np.ndarray:
        """Rewards [lanes, steps] before `step`, without those repeated from the rows before."""
        return block.rewards[:, self.overlapping : step]

    def end(self, block: Block) -> None:
        """Keep what the next rows begin with, after the last step of these."""
        for name, kept in self.carry.items():
            kept[:] = block.arrays[name][:, -kept.shape[1] :]
        self.overlapping = self.spec.overlap

    def cut(self, block: Block, step: int) -> None:
        """Keep only the observation before `step`, when half-filled rows are given up."""
        for name, kept in self.carry.items():
            source = block.arrays[name]
            if name == FRAMES:
                kept[:, -self.spec.frame_stack :] = source[:, step : step + self.spec.frame_stack]
            elif source.shape[1] == self.spec.steps + 1:
                kept[:, -1] = source[:, step]
        self.overlapping = 0

    def begin_episode(self, block: Block, lane: int, step: int, episode_id: int) -> None:
        """The transition at `step` only reset this lane; observation `step + 1` is the first."""
        block.mask[lane, step] = False
        self._restart_age(block, lane, step, episode_id)

    def begin_episode_at_once(self, block: Block, lane: int, step: int, episode_id: int) -> float:
        """The transition at `step` ended this lane's episode, and observation `step + 1` is the
        first of the next one. Returns the reward that is no longer in the row.

        A terminated episode needs no observation after its end. A truncated one needs its final
        observation for the bootstrap, which is missing here. It is therefore truncated one step
        earlier, where the observation exists, and its last transition is masked.
        """
        masked = 0.0
        if not block.terminated[lane, step]:
            masked = float(block.rewards[lane, step])
            block.rewards[lane, step] = 0
            block.mask[lane, step] = False
            block.truncated[lane, step] = False
            if step and block.age[lane, step]:
                block.truncated[lane, step - 1] = True
        self._restart_age(block, lane, step, episode_id)
        return masked

    def _restart_age(self, block: Block, lane: int, step: int, episode_id: int) -> None:
        block.age[lane, step + 1 :] = self._ahead[: self.spec.steps - step] - 1
        block.episode_id[lane, step + 1 :] = episode_id
