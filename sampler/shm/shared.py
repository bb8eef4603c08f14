"""Everything that the processes of one sampler share, in one arena."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sampler.errors import StateError
from sampler.shm.arena import Arena, Field, Layout
from sampler.shm.control import Control
from sampler.shm.counters import Counters
from sampler.shm.info_figures import InfoFigures
from sampler.shm.lock import ProcessLock
from sampler.shm.mailbox import EpisodeRings, ErrorSlots
from sampler.shm.ordering import check_processor
from sampler.shm.signals import request_field
from sampler.shm.store import SequenceStore, StoreSpec
from sampler.shm.tokens import TokenPool
from sampler.shm.weights import WeightStore

SAVED_APART = {
    "control",  # of the running processes
    *("counters", "episodes", "episode_numbers", "episode_heads"),  # saved by what reads them
    *("episode_totals", "episode_reads"),  # so are these
    *("weights", "weights_latest", "weights_marks"),  # perhaps on a GPU
    *("token_since_ns", "error_text", "error_size"),  # of this run alone
}
"""Fields that are not saved as they are."""


@dataclass(frozen=True)
class Topology:
    """How many processes, groups and lanes there are, and which belongs to which."""

    workers: int
    groups_per_worker: int
    lanes_per_group: int
    policy_workers: int

    @property
    def groups(self) -> int:
        return self.workers * self.groups_per_worker

    @property
    def lanes(self) -> int:
        return self.groups * self.lanes_per_group

    def groups_of(self, worker: int) -> range:
        return range(worker * self.groups_per_worker, (worker + 1) * self.groups_per_worker)

    def lanes_of_group(self, group: int) -> range:
        return range(group * self.lanes_per_group, (group + 1) * self.lanes_per_group)

    def policy_of(self, worker: int) -> int:
        """The policy worker that serves a rollout worker."""
        return worker % self.policy_workers

    def groups_served_by(self, policy: int) -> list[int]:
        return [
            group
            for worker in range(policy, self.workers, self.policy_workers)
            for group in self.groups_of(worker)
        ]

    # Every worker has a slot for its error and its control words: rollout workers come first.

    @property
    def processes(self) -> int:
        return self.workers + self.policy_workers

    def policy_slot(self, policy: int) -> int:
        return self.workers + policy


class Shared:
    """The arena of a sampler, with typed access to its contents. Can be sent to a child.

    Weights are read through a `WeightStore`, since they may be on a GPU instead.
    """

    def __init__(
        self,
        spec: StoreSpec,
        topology: Topology,
        weight_bytes: int,
        sync: bool,
        info_keys: int = 0,
    ):
        """Allocates the memory. Raises ConfigError if the machine lacks it, or may reorder writes
        to it with no fence available."""
        check_processor()
        fields = [
            *spec.fields(),
            *TokenPool.fields(spec.buffers, spec.tokens_per_buffer, topology.groups),
            request_field(topology.groups),
            Control.field(topology.processes),
            Counters.field(topology.workers, topology.policy_workers),
            *EpisodeRings.fields(topology.workers),
            *ErrorSlots.fields(topology.processes),
            *InfoFigures.fields(topology.workers, info_keys),
            *WeightStore.fields(weight_bytes),
            Field("lane_episodes", (topology.lanes,), np.dtype(np.int64)),
            Field("epsilon", (topology.lanes,), np.dtype(np.float32)),
        ]
        remedy = (
            f"lower buffers={spec.buffers}, batch={spec.rows} or rollout={spec.steps}, "
            "or free memory"
        )
        self.spec, self.topology, self.sync = spec, topology, sync
        self.arena = Arena(Layout(fields), remedy)
        self._open()
        self.tokens.reset()
        WeightStore(self.arena).reset()

    def _open(self) -> None:
        topology = self.topology
        self.store = SequenceStore(self.arena, self.spec)
        self.tokens = TokenPool(self.arena, ProcessLock(self.arena.fd), self.sync)
        self.requests = self.arena["requests"]
        self.control = Control(self.arena)
        self.counters = Counters(self.arena, topology.workers, topology.policy_workers)
        self.episodes = EpisodeRings(self.arena)
        self.errors = ErrorSlots(self.arena)
        has_figures = "info_sums" in self.arena.layout.fields
        self.infos = InfoFigures(self.arena) if has_figures else None
        self.lane_episodes = self.arena["lane_episodes"]  # [lanes], id of the next episode
        self.epsilon = self.arena["epsilon"]  # [lanes], exploration of models with Q-values

    def state_dict(self) -> dict[str, Any]:
        """The arena's contents except weights, times and errors; arrays are not copied."""
        return {
            "arrays": self._saved(),
            "episodes": self.episodes.state_dict(),
            "counters": self.counters.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict()`. Raises StateError if its arrays do not match those
        here."""
        for name, array in self._saved().items():
            saved = state["arrays"].get(name)
            if saved is None or (saved.shape, saved.dtype) != (array.shape, array.dtype):
                raise StateError(f"{name} is {array.dtype} {array.shape} and was something else")
            array[...] = saved
        self.episodes.load_state_dict(state["episodes"])
        self.counters.load_state_dict(state["counters"])

    def _saved(self) -> dict[str, np.ndarray]:
        return {
            name: self.arena[name] for name in self.arena.layout.fields if name not in SAVED_APART
        }

    def close(self) -> None:
        self.arena.close()

    def __getstate__(self) -> tuple:
        return self.spec, self.topology, self.sync, self.arena

    def __setstate__(self, state: tuple) -> None:
        self.spec, self.topology, self.sync, self.arena = state
        self._open()
