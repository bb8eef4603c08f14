"""Where sequences are written: K batch buffers of B rows, one array per field.

Arrays are batch-major and C-contiguous, `[K, B, T, ...]` or `[K, B, T+1, ...]`: a lane writes one
contiguous run, a finished buffer is one block per field, and a minibatch is a slice of rows.
Stacked observations are stored as single frames, `[S-1 + T+1, H, W]` per row; the frames that the
stack of step t shows are t .. t+S-1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sampler.shm.arena import Arena, Field

FRAMES = "frames"
FLAGS = ("terminated", "truncated", "mask")


@dataclass(frozen=True)
class ArraySpec:
    """Name, and shape and dtype per step, of one leaf of a space."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class StoreSpec:
    """Everything that determines the fields of a store and their shapes."""

    buffers: int
    rows: int
    steps: int
    overlap: int
    rows_per_token: int
    observations: tuple[ArraySpec, ...]
    actions: tuple[ArraySpec, ...]
    frame_stack: int = 1
    action_mask_size: int = 0
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Behaviour outputs of the model and their shapes per step, all float32."""
    state_shape: tuple[int, ...] = (0,)
    """Recurrent state of one lane; (0,) without one."""
    previous: bool = False
    """Whether the model asks for the previous action and reward."""

    @property
    def tokens_per_buffer(self) -> int:
        return self.rows // self.rows_per_token

    @property
    def has_state(self) -> bool:
        return int(np.prod(self.state_shape)) > 0

    @property
    def stacks_frames(self) -> bool:
        return self.frame_stack > 1

    @property
    def observation_fields(self) -> list[str]:
        """Names of the fields that make up an observation."""
        return [FRAMES] if self.stacks_frames else [leaf.name for leaf in self.observations]

    def per_observation(self) -> list[ArraySpec]:
        """Fields with T+1 entries per row, one for each observation, except stacked frames."""
        specs = [] if self.stacks_frames else list(self.observations)
        specs.append(ArraySpec("age", (), np.dtype(np.int32)))
        if self.action_mask_size:
            specs.append(ArraySpec("action_mask", (self.action_mask_size,), np.dtype(bool)))
        if self.previous:
            specs += [ArraySpec(f"previous_{a.name}", a.shape, a.dtype) for a in self.actions]
            specs.append(ArraySpec("previous_rewards", (), np.dtype(np.float32)))
        return specs

    def per_transition(self) -> list[ArraySpec]:
        """Fields with T entries per row, one for each transition."""
        specs = list(self.actions)
        specs += [ArraySpec(n, s, np.dtype(np.float32)) for n, s in self.outputs.items()]
        specs.append(ArraySpec("rewards", (), np.dtype(np.float32)))
        specs += [ArraySpec(name, (), np.dtype(bool)) for name in FLAGS]
        specs.append(ArraySpec("policy_version", (), np.dtype(np.int64)))
        specs.append(ArraySpec("episode_id", (), np.dtype(np.int64)))
        return specs

    def per_row(self) -> list[ArraySpec]:
        """Fields with one entry per row."""
        specs = [ArraySpec("lane_id", (), np.dtype(np.int64))]
        if self.has_state:
            specs.append(ArraySpec("rnn_state", self.state_shape, np.dtype(np.float32)))
        return specs

    @property
    def frames_per_row(self) -> int:
        return self.frame_stack + self.steps

    def fields(self) -> list[Field]:
        """The arrays of the store, for an arena's layout."""
        head = (self.buffers, self.rows)
        fields = [Field(s.name, head + s.shape, s.dtype) for s in self.per_row()]
        fields += [
            Field(s.name, head + (self.steps + 1,) + s.shape, s.dtype)
            for s in self.per_observation()
        ]
        fields += [
            Field(s.name, head + (self.steps,) + s.shape, s.dtype) for s in self.per_transition()
        ]
        if self.stacks_frames:
            frame = self.observations[0]
            count = self.buffers * self.rows * self.frames_per_row
            # One frame more than the rows hold: zeros, in place of every frame from before the
            # first observation of an episode.
            fields.append(Field(FRAMES, (count + 1,) + frame.shape, frame.dtype))
        return fields

    @property
    def bytes_per_step(self) -> float:
        """Bytes of store for each transition that it holds."""
        return sum(f.nbytes for f in self.fields()) / (self.buffers * self.rows * self.steps)


class SequenceStore:
    """The arrays of a store in an arena, by field name: `store["rewards"]` is [K, B, T]."""

    def __init__(self, arena: Arena, spec: StoreSpec):
        self.spec = spec
        self.arrays = {f.name: arena[f.name] for f in spec.fields()}
        if spec.stacks_frames:
            self.flat_frames = self.arrays[FRAMES]  # [K*B*(S+T) + 1, H, W]
            head = (spec.buffers, spec.rows, spec.frames_per_row)
            self.arrays[FRAMES] = self.flat_frames[:-1].reshape(head + self.flat_frames.shape[1:])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def buffer(self, index: int) -> dict[str, np.ndarray]:
        """One batch buffer: every field as [B, ...]."""
        return {name: array[index] for name, array in self.arrays.items()}

    def block(self, token: int) -> dict[str, np.ndarray]:
        """The rows of a token: every field as [rows per token, ...]."""
        buffer, position = divmod(token, self.spec.tokens_per_buffer)
        start = position * self.spec.rows_per_token
        rows = slice(start, start + self.spec.rows_per_token)
        return {name: array[buffer, rows] for name, array in self.arrays.items()}
