"""Collecting requests that are ready, gathering the model's inputs, and writing its outputs.

Everything here is vectorised over all lanes of all requests of a batch: one numpy call per field.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sampler.shm.ordering import acquire, release
from sampler.shm.shared import Shared
from sampler.shm.signals import ANSWERED, ASKED, REFUSED, ROW, STEP, TOKEN
from sampler.shm.store import FRAMES
from sampler.spaces import frame_stacks


@dataclass(frozen=True)
class Requests:
    """The requests of one inference batch: R of them, N = R x lanes per group lanes."""

    positions: np.ndarray  # [R], of the groups among those that this policy worker serves
    sequence: np.ndarray  # [R], the number to answer with
    steps: np.ndarray  # [R], step within the row
    rows: np.ndarray  # [R], rows that the group has begun
    lanes: np.ndarray  # [N], position of each lane among those served
    stored: np.ndarray  # [N], row of each lane in the store, counted over all buffers

    def __len__(self) -> int:
        return len(self.positions)


class RequestBook:
    """The requests of the groups that one policy worker serves."""

    def __init__(self, shared: Shared, policy: int):
        self.groups = np.array(shared.topology.groups_served_by(policy))
        self.workers = self.groups // shared.topology.groups_per_worker
        self.words = shared.requests
        self.lanes_per_group = shared.topology.lanes_per_group
        self._all = len(self.groups) == shared.topology.groups
        self._offsets = np.arange(self.lanes_per_group)

    @property
    def lanes(self) -> np.ndarray:
        """The lanes served, by their numbers in the sampler."""
        return (self.groups[:, None] * self.lanes_per_group + self._offsets).ravel()

    def collect(self) -> Requests | None:
        """All requests that wait for an answer, or None."""
        words = self.words if self._all else self.words[self.groups]
        asked = words[:, ASKED]
        waiting = (asked != words[:, ANSWERED]) & (asked != words[:, REFUSED])
        positions = np.flatnonzero(waiting)
        if not len(positions):
            return None
        sequence = asked[positions]
        acquire()  # read the numbers before the words that they announce
        return self._of(positions, sequence, self.words[self.groups[positions]])

    def _of(self, positions: np.ndarray, sequence: np.ndarray, words: np.ndarray) -> Requests:
        """The requests at `positions` with their numbers [R] and `words` [R, REQUEST_WORDS]."""
        size = self.lanes_per_group
        return Requests(
            positions,
            sequence,
            words[:, STEP],
            words[:, ROW],
            (positions[:, None] * size + self._offsets).ravel(),
            (words[:, TOKEN, None] * size + self._offsets).ravel(),
        )

    def answer(self, requests: Requests) -> set[int]:
        """Mark as answered; returns the rollout workers to wake."""
        release()  # write the rows before the numbers that announce them
        self.words[self.groups[requests.positions], ANSWERED] = requests.sequence
        return set(self.workers[requests.positions].tolist())

    def refuse(self, requests: Requests, refused: np.ndarray) -> set[int]:
        """Mark some (bool [R]) as refused: their rows must begin again. Returns the rollout workers
        to wake."""
        positions = requests.positions[refused]
        self.words[self.groups[positions], REFUSED] = requests.sequence[refused]
        return set(self.workers[positions].tolist())


def select(requests: Requests, chosen: np.ndarray) -> Requests:
    """Some of the requests, by bool [R]."""
    lanes = np.repeat(chosen, len(requests.lanes) // len(requests))
    return Requests(
        requests.positions[chosen],
        requests.sequence[chosen],
        requests.steps[chosen],
        requests.rows[chosen],
        requests.lanes[lanes],
        requests.stored[lanes],
    )


class RowAccess:
    """Reads observations from rows into inference batches, and writes outputs into rows."""

    def __init__(self, shared: Shared, lanes: int):
        """`lanes`: the largest number of lanes in a batch, which sizes the buffers."""
        self.spec = spec = shared.spec
        self.lanes_per_group = shared.topology.lanes_per_group
        store = shared.store
        self._per_observation = {
            s.name: store[s.name].reshape((-1,) + s.shape) for s in spec.per_observation()
        }
        self._per_transition = {
            s.name: store[s.name].reshape((-1,) + s.shape) for s in spec.per_transition()
        }
        self._per_row = {s.name: store[s.name].reshape((-1,) + s.shape) for s in spec.per_row()}
        self.buffers = {
            name: np.zeros((lanes,) + flat.shape[1:], flat.dtype)
            for name, flat in self._per_observation.items()
        }
        if spec.stacks_frames:
            frame = store.flat_frames.shape[1:]
            self._frames = store.flat_frames
            self._zero_frame = len(store.flat_frames) - 1
            self.buffers[FRAMES] = np.zeros((lanes, spec.frame_stack) + frame, np.uint8)

    def steps_of_lanes(self, requests: Requests) -> np.ndarray:
        """The step of each lane, [N]."""
        return np.repeat(requests.steps, self.lanes_per_group)

    def gather(self, requests: Requests, names: list[str]) -> dict[str, np.ndarray]:
        """Copy the named fields of the current observations; views of buffers, [N, ...].

        `frames` come as stacks [N, S, H, W], with zeros in place of frames from before the episode.
        """
        count = len(requests.lanes)
        index = requests.stored * (self.spec.steps + 1) + self.steps_of_lanes(requests)
        gathered = {}
        for name in names:
            if name != FRAMES:
                gathered[name] = out = self.buffers[name][:count]
                # "clip" lets take write straight into the buffer; indices are always in range.
                self._per_observation[name].take(index, axis=0, out=out, mode="clip")
        if FRAMES in names:
            gathered[FRAMES] = self._gather_frames(requests, gathered["age"])
        return gathered

    def _gather_frames(self, requests: Requests, age: np.ndarray) -> np.ndarray:
        oldest = requests.stored * self.spec.frames_per_row + self.steps_of_lanes(requests)
        out = self.buffers[FRAMES][: len(age)]
        frame_stacks.gather(self._frames, oldest, age, out, self._zero_frame)
        return out

    def write(self, requests: Requests, outputs: dict[str, np.ndarray | int]) -> None:
        """Write fields of the current transitions, each [N, ...] or one value for all."""
        index = requests.stored * self.spec.steps + self.steps_of_lanes(requests)
        for name, values in outputs.items():
            self._per_transition[name][index] = values

    def write_states(self, stored: np.ndarray, states: np.ndarray) -> None:
        """Write the recurrent states [n, ...] that the rows `stored` [n] begin with."""
        self._per_row["rnn_state"][stored] = states
