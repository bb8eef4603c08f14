"""How far stored recurrent states have drifted from those that the newest weights would compute.

Rows of one lane overlap, so a row begins at a step inside the row before it. At that step there are
two states: the stored one, made by older weights, and the one that the newest weights recompute
from the row before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sampler.spaces import map_leaves


class RowLinks:
    """Which stored row begins at step `shift` of another one."""

    def __init__(self, capacity: int, shift: int) -> None:
        """`capacity`: rows in the replay. `shift`: steps between the starts of a lane's rows."""
        self.shift = shift
        self._next = np.full(capacity, -1)
        # Per lane: episode and age at which its next row is to begin, and the row before.
        self._awaited: dict[int, tuple[int, int, int]] = {}

    def add(
        self, rows: np.ndarray, lane_id: np.ndarray, episode_id: np.ndarray, age: np.ndarray
    ) -> None:
        """Rows [n] by serial number, with their fields lane_id [n], episode_id [n, T] and age
        [n, T+1]."""
        capacity = len(self._next)
        self._next[rows % capacity] = -1
        order = np.lexsort((age[:, 0], episode_id[:, 0], lane_id))
        starts = np.stack((lane_id, episode_id[:, 0], age[:, 0]), 1)[order].tolist()
        following = np.stack((episode_id[:, self.shift], age[:, self.shift]), 1)[order].tolist()
        for row, (lane, *start), (episode, later) in zip(
            rows[order].tolist(), starts, following, strict=True
        ):
            awaited = self._awaited.get(lane)
            if awaited is not None and start == list(awaited[:2]):
                self._next[awaited[2] % capacity] = row
            self._awaited[lane] = (episode, later, row)

    def following(self, rows: np.ndarray) -> np.ndarray:
        """Serial numbers [n] of the rows that begin inside `rows`; -1 where none is known."""
        return self._next[rows % len(self._next)]

    def state_dict(self) -> dict[str, np.ndarray]:
        """The complete state, as arrays."""
        awaited = [(lane, *start) for lane, start in self._awaited.items()]
        return {"next": self._next, "awaited": np.array(awaited, np.int64).reshape(-1, 4)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from the `state_dict()` of links of the same capacity."""
        self._next[:] = state["next"]
        self._awaited = {lane: tuple(start) for lane, *start in state["awaited"].tolist()}


@torch.no_grad()
def delta_q(
    model: Any, obs: Any, is_first: Tensor, state: Tensor, stored: Tensor, at: int
) -> tuple[Tensor, Tensor]:
    """Distance of Q-values between a recomputed and a stored state at step `at` (Kapturowski et
    al. 2019, section 3): |Q^ - Q| / max |Q^|, at that step and at the last one, two scalars.

    obs: leaves [n, T, ...]. is_first: bool [n, T]. state: [n, *state] before step 0, from which the
    state is recomputed. stored: [n, *state] before step `at`. Rows in which an episode begins in
    between are left out; NaN if that leaves none.
    """

    def part(start: int, stop: int | None) -> Any:
        return map_leaves(lambda leaf: leaf[:, start:stop], obs)

    _, recomputed = model.unroll(part(0, at), state, is_first[:, :at])
    later, later_first = part(at, None), is_first[:, at:]
    q_new = model.unroll(later, recomputed, later_first)[0]["q_values"].float()
    q_old = model.unroll(later, stored, later_first)[0]["q_values"].float()
    scale = q_new.abs().amax((1, 2)).clamp_min(1e-6)
    distance = (q_new - q_old).norm(dim=-1) / scale[:, None]
    carried = later_first.cumsum(1) == 0
    return distance[:, 0][carried[:, 0]].mean(), distance[:, -1][carried[:, -1]].mean()
