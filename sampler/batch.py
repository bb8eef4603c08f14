"""A finished batch: named views of shared memory, released as a whole.

`SequenceBatch` holds numpy arrays; `to(device)` returns the same batch as torch tensors. Both are
sliced by rows, and both assemble stacked observations from single frames only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from sampler.errors import ReleasedBatchError
from sampler.shm.store import FRAMES, StoreSpec
from sampler.spaces import leaves, unflatten
from sampler.spaces.model_inputs import model_inputs


class Lease:
    """Whether the rows of a batch may still be read; shared by the batch and all its slices."""

    def __init__(self, release: Callable[[], None] | None = None):
        self._release = release
        self.active = True

    def release(self) -> None:
        self.active = False
        release, self._release = self._release, None  # no cycle with the sampler remains
        if release is not None:
            release()


class SequenceBatch:
    """B rows of T steps. Attributes are the fields of the store, batch-first:

    `rewards`, `log_probs`, `mask` ... [B, T]; `age`, `is_first` [B, T+1]; `rnn_state` [B, ...] or
    None; `obs`, `actions` nested like their spaces. Every model output that the store keeps is an
    attribute under its own name. Using a batch after its release raises ReleasedBatchError.
    """

    def __init__(
        self,
        fields: dict[str, Any],
        spec: StoreSpec,
        observation_space: gym.Space,
        action_space: gym.Space,
        model_inputs: tuple[str, ...] = ("obs",),
        lease: Lease | None = None,
    ):
        self._fields = fields
        self.spec = spec
        self.observation_space = observation_space
        self.action_space = action_space
        self._model_inputs = model_inputs
        self._lease = lease or Lease()

    def __len__(self) -> int:
        return len(self._fields["lane_id"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key: str | slice) -> Any:
        """A field by name, or a batch of some of the rows (a slice; the fields stay views)."""
        fields = self.fields
        if isinstance(key, slice):
            return self._like({name: array[key] for name, array in fields.items()})
        try:
            return fields[key]
        except KeyError:
            raise AttributeError(
                f"no field {key!r} in this batch; it has {', '.join(sorted(fields))}"
            ) from None

    def _like(self, fields: dict[str, Any]) -> SequenceBatch:
        return SequenceBatch(
            fields,
            self.spec,
            self.observation_space,
            self.action_space,
            self._model_inputs,
            self._lease,
        )

    @property
    def fields(self) -> dict[str, Any]:
        """All arrays by field name; stacked observations as single frames, named `frames`."""
        if not self._lease.active:
            raise ReleasedBatchError(
                "this batch was released and its rows may hold other data by now; "
                "finish with a batch before the next one is taken, or copy what you keep"
            )
        return self._fields

    @property
    def is_first(self) -> Any:
        """Whether an observation is the first of its episode, bool [B, T+1]."""
        return self.age == 0

    @property
    def obs(self) -> Any:
        """Observations [B, T+1, ...], nested like the space; stacks [B, T+1, S, H, W]."""
        if self.spec.stacks_frames:
            return stack_frames(self[FRAMES], self.age, self.spec.frame_stack)
        return self._nested("obs", self.observation_space)

    @property
    def actions(self) -> Any:
        """Actions [B, T, ...], nested like the space."""
        return self._nested("actions", self.action_space)

    @property
    def previous_actions(self) -> Any:
        """The action before each observation [B, T+1, ...]; zeros at the start of an episode."""
        return self._nested("previous_actions", self.action_space)

    @property
    def action_mask(self) -> Any:
        """Allowed actions, bool [B, T+1, A]; None where the environment gives none."""
        return self["action_mask"] if self.spec.action_mask_size else None

    @property
    def rnn_state(self) -> Any:
        """Recurrent state before each row's first step, float32 [B, ...]; None without one."""
        return self["rnn_state"] if self.spec.has_state else None

    @property
    def model_obs(self) -> Any:
        """What the model's `unroll` takes: `obs`, or a dict of everything that it asks for."""
        return model_inputs(self._model_inputs, partial(getattr, self))

    def _nested(self, name: str, space: gym.Space) -> Any:
        return unflatten(space, [self[leaf.name] for leaf in leaves(space, name)])

    def to(self, device: Any) -> SequenceBatch:
        """The batch as torch tensors on `device`: views on the CPU, one transfer per field else.

        Transfers are asynchronous where the store is pinned; work queued on the current stream
        after this call sees them finished.
        """
        import torch

        tensors = {
            name: torch.as_tensor(array).to(device, non_blocking=True)
            for name, array in self.fields.items()
        }
        return self._like(tensors)

    def release(self) -> None:
        """Give the rows back to the sampler; the batch must not be used any more. Idempotent."""
        self._lease.release()


def stack_frames(frames: Any, age: Any, frame_stack: int) -> Any:
    """Assemble stacks, oldest frame first, with zeros for frames from before an episode's start.

    frames: [B, S-1 + T+1, H, W]; age: [B, T+1], steps since the episode began. Returns
    [B, T+1, S, H, W] of the frames' dtype, numpy or torch as given.
    """
    steps = age.shape[1]
    parts = [frames[:, position : position + steps] for position in range(frame_stack)]
    stacks: Any
    if isinstance(frames, np.ndarray):
        stacks = np.stack(parts, axis=2)
    else:
        import torch

        stacks = torch.stack(parts, dim=2)
    for position in range(frame_stack - 1):
        stacks[:, :, position][age < frame_stack - 1 - position] = 0
    return stacks
