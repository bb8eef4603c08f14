"""Prioritised replay of n-step transitions, on the rows that sequence replay stores.

Nothing is stored twice: a transition is a step of a stored row. Rewards are summed, goals
relabelled and frames stacked when a transition is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sampler.learner.replay.hindsight import Hindsight, episode_segments
from sampler.learner.replay.n_step import Windows, check_overlap, fold_windows, n_step_windows
from sampler.learner.replay.priorities import Normalize, Priorities
from sampler.learner.replay.row_storage import Fields, FieldSpecs, RowStorage
from sampler.learner.replay.sequence_replay import Replay
from sampler.spaces import frame_stacks

FRAMES = "frames"
ACHIEVED, DESIRED = "obs.achieved_goal", "obs.desired_goal"


class TransitionReplay(Replay):
    """The transitions (x_t, a_t, r_t + ... + gamma^(k-1) r_(t+k-1), x_(t+k)) of stored rows.

    A sample is a dict of arrays:

        obs..., next_obs...    observations [n, ...] by leaf; from stacked frames [n, S, H, W]
        action_mask, next_action_mask    [n, A], where the rows have them
        actions...             actions [n, ...] by leaf
        rewards, discounts     float32 [n]: the n-step return, and gamma^k or 0 at a termination

    Each is named by an index, row x T + step, in which `row` is the row's serial number. See
    `n_step` for which steps start a transition. Not thread-safe.
    """

    def __init__(
        self,
        fields: FieldSpecs,
        capacity: int,
        n: int = 3,
        gamma: float = 0.99,
        overlap: int | None = None,
        reward_clip: float = math.inf,
        hindsight: Hindsight | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        uniform: float = 0.0,
        normalize: Normalize = "batch",
        path: str | Path | None = None,
        remedy: str = "lower the capacity, or set a path to keep it on disk",
        max_bytes: int | None = None,
    ) -> None:
        """`fields`: name -> (shape, dtype) of one row's part, named as in the sampler's store.
        `capacity`: rows. `overlap`: steps that a row shares with the lane's next one; None: n - 1.
        `reward_clip`: bound of single rewards; the attribute may be changed between samples. The
        rest is explained at `SequenceReplay`.

        Raises ConfigError where the rows do not fit, or lose transitions.
        """
        self.n, self.gamma, self.reward_clip, self.hindsight = n, gamma, reward_clip, hindsight
        self.steps = fields["rewards"][0][0]
        self.overlap = n - 1 if overlap is None else overlap
        check_overlap(n, self.overlap, self.steps)
        observed = [k for k in fields if _is_leaf(k, "obs") or k == "action_mask"]
        acted = [k for k in fields if _is_leaf(k, "actions")]
        needed = [*observed, *acted, "rewards", "terminated", "truncated", "mask"]
        needed += [k for k in (FRAMES, "age") if FRAMES in fields]
        stored = {k: fields[k] for k in needed}
        self.storage = RowStorage(stored, capacity, path, remedy, max_bytes)
        items = self.storage.capacity * self.steps
        self.priorities = Priorities(items, alpha, beta, uniform, normalize)
        self._observed, self._acted = observed, acted

    def __len__(self) -> int:
        """Transitions stored now."""
        return self.priorities.count

    @property
    def frame_stack(self) -> int:
        """S, frames in a stack; 1 where observations are not stacked."""
        if FRAMES not in self.storage.specs:
            return 1
        return self.storage.specs[FRAMES][0][0] - self.steps

    def add(self, fields: Mapping[str, np.ndarray], priorities: Any = None) -> np.ndarray:
        """Copies n rows in, over the oldest if it is full; returns their serial numbers.

        fields: arrays [n, *shape] for every field (others are ignored). priorities: [n, T], of the
        transition that starts at each step (ignored where none starts), or None: the largest so
        far.
        """
        rows = self.storage.add(fields)[-self.storage.capacity :]
        slots = self.storage.slots(rows)
        valid = self._windows(slots).valid
        kept = None
        if priorities is not None:
            kept = np.where(valid, np.asarray(priorities)[-len(rows) :], 0.0).ravel()
        index = slots[:, None] * self.steps + np.arange(self.steps)
        self.priorities.add(index.ravel(), kept, valid.ravel())
        return rows

    def sample(
        self,
        n: int,
        generator: np.random.Generator,
        out: Fields | None = None,
        beta: float | None = None,
        stratified: bool = True,
    ) -> tuple[Fields, np.ndarray, np.ndarray]:
        """n transitions in proportion to their priorities, with replacement.

        Returns their fields (see the class), large ones copied to `out` (`buffers(n)`) if given;
        their indices int64 [n]; and importance weights float32 [n]. Raises ValueError while no
        transition is stored.
        """
        items, weights = self.priorities.sample(n, generator, beta, stratified)
        out = self.buffers(n) if out is None else out
        slots, steps = np.divmod(items, self.steps)
        chosen = np.zeros(0, np.int64)
        goals = None
        if self.hindsight is not None:
            chosen, goals = self._new_goals(self.hindsight, slots, steps, generator)
        windows = self._fold(slots, steps, chosen, goals)
        out["rewards"][...] = windows.returns
        out["discounts"][...] = windows.discounts
        for name in self._acted:
            self._gather(name, slots, steps, out[name])
        for prefix, at in (("", steps), ("next_", steps + windows.lengths)):
            for name in self._observed:
                self._gather(name, slots, at, out[prefix + name])
            if goals is not None:
                out[prefix + DESIRED][chosen] = goals
            if FRAMES in self.storage.specs:
                self._stack(slots, at, out[prefix + "obs"])
        return out, self.storage.rows(slots) * self.steps + steps, weights

    def buffers(self, n: int) -> Fields:
        """Arrays for n sampled transitions, to be used again and again."""
        specs = self.storage.specs
        shapes = {k: (specs[k][0][1:], specs[k][1]) for k in self._acted}
        shapes["rewards"] = shapes["discounts"] = ((), np.dtype(np.float32))
        for prefix in ("", "next_"):
            shapes |= {prefix + k: (specs[k][0][1:], specs[k][1]) for k in self._observed}
            if FRAMES in specs:
                shape, dtype = specs[FRAMES]
                shapes[prefix + "obs"] = ((self.frame_stack, *shape[1:]), dtype)
        return {name: np.empty((n, *shape), dtype) for name, (shape, dtype) in shapes.items()}

    def update_priorities(self, index: np.ndarray, priorities: Any) -> int:
        """Sets priorities [n] of transitions by their indices; the last of repeated ones counts.

        Those overwritten since they were sampled are skipped; returns how many were still there.
        """
        rows, steps = np.divmod(np.asarray(index), self.steps)
        stored = self.storage.stored(rows)
        items = self.storage.slots(rows[stored]) * self.steps + steps[stored]
        self.priorities.update(items, np.asarray(priorities)[stored])
        return int(stored.sum())

    def _windows(self, slots: np.ndarray) -> Windows:
        """The transitions that start in whole rows, [len(slots), T]."""
        fields = {k: self.storage.arrays[k][slots] for k in ("terminated", "truncated", "mask")}
        cuts = fields["terminated"] | fields["truncated"]
        nothing = np.zeros(cuts.shape, np.float32)
        return n_step_windows(nothing, nothing, cuts, fields["mask"], self.n, self.overlap)

    def _fold(
        self, slots: np.ndarray, steps: np.ndarray, chosen: np.ndarray, goals: np.ndarray | None
    ) -> Windows:
        """Returns of the transitions that start at `steps`, with new `goals` for those `chosen`."""
        at = steps[:, None] + np.arange(self.n)
        inside = at < self.steps
        at = np.minimum(at, self.steps - 1)
        arrays, rows = self.storage.arrays, slots[:, None]
        rewards, terminated = arrays["rewards"][rows, at], arrays["terminated"][rows, at]
        cuts = terminated | arrays["truncated"][rows, at]
        if goals is not None and self.hindsight is not None:
            achieved = arrays[ACHIEVED][rows[chosen], at[chosen] + 1]
            rewards[chosen] = self.hindsight.rewards(achieved, goals)
            ended = self.hindsight.terminated(achieved, goals)
            if ended is not None:
                terminated[chosen] = ended
        if self.reward_clip < math.inf:
            rewards = rewards.clip(-self.reward_clip, self.reward_clip)
        mask = arrays["mask"][rows, at] & inside
        return fold_windows(rewards, self.gamma * ~terminated, cuts | terminated, mask)

    def _new_goals(
        self,
        hindsight: Hindsight,
        slots: np.ndarray,
        steps: np.ndarray,
        generator: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions in the batch to relabel and the goals, achieved later, that they get."""
        chosen = hindsight.choose(len(slots), generator)
        slots, steps = slots[chosen], steps[chosen]
        arrays, each = self.storage.arrays, np.arange(len(chosen))
        cuts = arrays["terminated"][slots] | arrays["truncated"][slots]
        first, last = episode_segments(cuts, arrays["mask"][slots])
        at = hindsight.goal_steps(steps, first[each, steps], last[each, steps], generator)
        return chosen, arrays[ACHIEVED][slots, at]

    def _gather(self, name: str, slots: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
        """Copies entries (slot, at) of a field [capacity, time, ...] to `out` [n, ...]."""
        array = self.storage.arrays[name]
        flat = array.reshape(-1, *array.shape[2:])
        np.take(flat, slots * array.shape[1] + at, axis=0, out=out, mode="clip")

    def _stack(self, slots: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
        """Copies the stacks of frames of (slot, at) to `out` [n, S, H, W]."""
        frames, age = self.storage.arrays[FRAMES], self.storage.arrays["age"][slots, at]
        oldest = slots * frames.shape[1] + at
        frame_stacks.gather(frames.reshape(-1, *frames.shape[2:]), oldest, age, out)


def _is_leaf(name: str, field: str) -> bool:
    return name == field or name.startswith(field + ".")
