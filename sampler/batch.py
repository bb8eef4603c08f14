"""A finished batch: named views of shared memory, released as a whole.

`SequenceBatch` holds numpy arrays; `to(device)` returns the same batch as torch tensors. Both are
sliced by rows, and both assemble stacked observations from single frames only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, overload

import gymnasium as gym
import numpy as np
from typing_extensions import TypeVar

from sampler.errors import ReleasedBatchError
from sampler.lease import Lease
from sampler.shm.store import FRAMES, StoreSpec
from sampler.spaces import frame_stacks, leaves, unflatten
from sampler.spaces.model_inputs import model_inputs

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    Rows = slice | list[int] | list[bool] | NDArray[Any] | Tensor

ArrayT = TypeVar("ArrayT", default=Any)
"""`np.ndarray` or `torch.Tensor`."""


class SequenceBatch(Generic[ArrayT]):
    """B rows of T steps, as numpy arrays or (after `to`) as torch tensors.

    Attributes are the fields of the store, batch-first. Every model output that the store keeps is
    an attribute of the same name, and so is every field added by `with_fields`. The fields are also
    a mapping: `batch["rewards"]`, `"values" in batch`, `list(batch)`, `dict(batch)`,
    `batch.items()`. There are two differences: `len(batch)` is the number of rows, and
    `batch.values` is what the model predicted.

    A batch, its slices and `to("cpu")` are views of memory that is reused after the release. Using
    a batch after its release raises ReleasedBatchError, and arrays or tensors taken from it earlier
    then show other data. Copies may be kept and pickled: `copy()`, `batch[indices]` and `flatten()`
    make them.
    """

    # Declared without values for mypy and editors; `__getattr__` finds the arrays.
    rewards: ArrayT
    """[B, T] float32: raw, unclipped."""
    terminated: ArrayT
    """[B, T] bool: the episode ended by itself."""
    truncated: ArrayT
    """[B, T] bool: the episode was cut off."""
    mask: ArrayT
    """[B, T] bool: False where the transition is not real: in the step after an episode's end,
    which only resets the environment, and in rows that were given up."""
    age: ArrayT
    """[B, T+1] int32: steps since the episode began."""
    log_probs: ArrayT
    """[B, T] float32: of the actions, when they were chosen."""
    values: ArrayT
    """[B, T] float32: predicted when the actions were chosen; not every model does."""
    policy_version: ArrayT
    """[B, T] int64: of the weights that chose the actions."""
    episode_id: ArrayT
    """[B, T] int64: number of the episode in its lane."""
    lane_id: ArrayT
    """[B] int64: the lane that made the row."""

    __slots__ = (
        "__weakref__",
        "_fields",
        "_lease",
        "_model_inputs",
        "action_space",
        "observation_space",
        "spec",
    )

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
        self._lease.borrow(self)

    # ---- a mapping of fields

    @property
    def fields(self) -> dict[str, ArrayT]:
        """All arrays by field name; stacked observations as single frames, named `frames`."""
        return self._arrays()

    def _arrays(self) -> dict[str, Any]:
        if not self._lease.active:
            raise ReleasedBatchError(
                "this batch was released and its rows may hold other data by now; "
                "finish with a batch before the next one is taken, or keep batch.copy()"
            )
        return self._fields

    def __len__(self) -> int:
        """Rows."""
        return len(self._arrays()["lane_id"])

    def __iter__(self) -> Iterator[str]:
        """The names of all fields."""
        return iter(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    def keys(self) -> KeysView[str]:
        """The names of all fields."""
        return self.fields.keys()

    def items(self) -> ItemsView[str, ArrayT]:
        """All fields with their names."""
        return self.fields.items()

    def get(self, name: str, default: Any = None) -> Any:
        """A field by name, or `default` where there is none."""
        return self.fields.get(name, default)

    @overload
    def __getitem__(self, key: str) -> ArrayT: ...

    @overload
    def __getitem__(self, key: Rows) -> SequenceBatch[ArrayT]: ...

    def __getitem__(self, key: str | Rows) -> ArrayT | SequenceBatch[ArrayT]:
        """A field by name, or a batch of some of the rows.

        Rows are chosen by a slice (the fields stay views), or by an array of indices [n] or a mask,
        bool [B] (the fields are copies that outlive the release). Raises KeyError for an unknown
        field and IndexError for rows outside the batch.
        """
        fields = self._arrays()
        if isinstance(key, str):
            if key not in fields:
                raise KeyError(self._missing(key))
            return fields[key]
        if isinstance(key, slice):
            return self._like({name: array[key] for name, array in fields.items()})
        index = self._index(key)
        return self._like({name: array[index] for name, array in fields.items()}, Lease())

    def __getattr__(self, name: str) -> ArrayT:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(self._missing(name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in SequenceBatch.__slots__:
            raise AttributeError(f"{name} cannot be set; use batch.with_fields({name}=...)")
        super().__setattr__(name, value)

    def _missing(self, name: str) -> str:
        return f"no field {name!r} in this batch; it has {', '.join(sorted(self.fields))}"

    def __repr__(self) -> str:
        if not self._lease.active:
            return "SequenceBatch(released)"
        kind = "numpy" if self._is_numpy else f"torch, {self._some_field.device}"
        fields = (
            f"{name} {str(array.dtype).removeprefix('torch.')} {list(array.shape)}"
            for name, array in self._fields.items()
        )
        rows, steps = self._fields["mask"].shape
        return f"SequenceBatch({rows} rows of {steps} steps, {kind}: {', '.join(fields)})"

    # ---- fields that are derived from others

    @property
    def is_first(self) -> ArrayT:
        """Whether an observation is the first of its episode, bool [B, T+1]."""
        age: Any = self["age"]
        return age == 0

    @property
    def obs(self) -> Any:
        """Observations [B, T+1, ...], nested like the space; stacks [B, T+1, S, H, W]."""
        if self.spec.stacks_frames:
            return frame_stacks.assemble(self[FRAMES], self["age"], self.spec.frame_stack)
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
    def action_mask(self) -> ArrayT | None:
        """Allowed actions, bool [B, T+1, A]; None where the environment gives none."""
        return self["action_mask"] if self.spec.action_mask_size else None

    @property
    def rnn_state(self) -> ArrayT | None:
        """Recurrent state before each row's first step, float32 [B, ...]; None without one."""
        return self["rnn_state"] if self.spec.has_state else None

    @property
    def model_obs(self) -> Any:
        """What the model's `unroll` takes: `obs`, or a dict of all the inputs that it names."""
        return model_inputs(self._model_inputs, partial(getattr, self))

    def _nested(self, name: str, space: gym.Space) -> Any:
        return unflatten(space, [self.__getattr__(leaf.name) for leaf in leaves(space, name)])

    # ---- other batches

    def to(self, device: torch.device | str | int) -> SequenceBatch[Tensor]:
        """The batch as torch tensors on `device`: views on the CPU, otherwise one transfer per
        field.

        Transfers are asynchronous where the store is pinned; work queued on the current stream
        after this call sees them finished, and the release of the batch waits for them.
        """
        import torch

        target = torch.device(device)
        tensors = {
            name: torch.as_tensor(array).to(target, non_blocking=True)
            for name, array in self.fields.items()
        }
        if target.type == "cuda":
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(target))
            self._lease.wait_for(copied)
        return self._like(tensors)

    def copy(self) -> SequenceBatch[ArrayT]:
        """The same rows in memory of their own, which may be kept after the release."""
        if self._is_numpy:
            copies = {name: np.array(array) for name, array in self.fields.items()}
        else:
            copies = {name: tensor.clone() for name, tensor in self._arrays().items()}
        return self._like(copies, Lease())

    def with_fields(self, **fields: Any) -> SequenceBatch[ArrayT]:
        """This batch with more fields (or others in place of some), each [B, ...].

        They are sliced, moved and copied with it. Those of shape [B, T, ...] belong to the steps,
        those of shape [B, T+1, ...] to the observations. Raises ValueError for another number of
        rows, and for names that are already attributes of a batch.
        """
        for name, array in fields.items():
            if name not in self.fields and (name.startswith("_") or hasattr(SequenceBatch, name)):
                raise ValueError(f"a batch has another use for {name!r}; choose another name")
            if tuple(array.shape[:1]) != (len(self),):
                raise ValueError(
                    f"{name} has shape {list(array.shape)}; the batch has {len(self)} rows, so it "
                    f"should be [{len(self)}, ...]"
                )
        return self._like({**self.fields, **fields})

    def minibatches(
        self, rows: int, generator: np.random.Generator | torch.Generator | None = None
    ) -> Iterator[SequenceBatch[ArrayT]]:
        """All rows once, `rows` at a time; the last minibatch has the remainder.

        generator: shuffles the rows, which copies them; None: keeps their order, as views.
        Raises ValueError for rows < 1.
        """
        if rows < 1:
            raise ValueError(f"rows={rows}: a minibatch needs at least 1")
        order = None if generator is None else _permutation(len(self), generator)
        for start in range(0, len(self), rows):
            part = slice(start, start + rows)
            yield self[part] if order is None else self[order[part]]

    def flatten(self, valid_only: bool = True) -> SequenceBatch[ArrayT]:
        """Every step as a row of its own: a copy with N rows of 1 step, in the order of the rows.

        `flat.actions` is then [N, 1, ...] and `flat.obs` [N, 2, ...]: before and after the step.
        valid_only: leave out steps where `mask` is False. Raises ValueError for a model with
        memory, whose state is only known at the start of a row.
        """
        if self.spec.has_state:
            raise ValueError(
                "the model's memory is known at the start of a row only, so steps cannot be taken "
                "out of their rows; use minibatches(rows)"
            )
        mask: Any = self.mask
        steps = mask.shape[1]
        chosen = mask if valid_only else mask | ~mask
        row, step = chosen.nonzero() if self._is_numpy else chosen.nonzero(as_tuple=True)

        def windows(array: Any, length: int) -> Any:
            if self._is_numpy:
                offsets: Any = np.arange(length)
            else:
                import torch

                offsets = torch.arange(length, device=array.device)
            return array[row[:, None], step[:, None] + offsets]

        flat = {}
        for name, array in self._arrays().items():
            if name == FRAMES:
                flat[name] = windows(array, self.spec.frame_stack + 1)
            elif name == "lane_id" or array.shape[1:2] not in ((steps,), (steps + 1,)):
                flat[name] = array[row]
            else:
                flat[name] = windows(array, 1 + array.shape[1] - steps)
        spec = replace(self.spec, rows=len(row), steps=1, overlap=0)
        return self._like(flat, Lease(), spec)

    def _like(
        self, fields: dict[str, Any], lease: Lease | None = None, spec: StoreSpec | None = None
    ) -> SequenceBatch[Any]:
        spaces = self.observation_space, self.action_space
        lease = self._lease if lease is None else lease
        return SequenceBatch(fields, spec or self.spec, *spaces, self._model_inputs, lease)

    def _index(self, rows: Any) -> Any:
        """Indices or a mask of rows, checked, as an array or a tensor like the fields."""
        index = np.asarray(rows.cpu() if hasattr(rows, "cpu") else rows)
        if index.shape == (0,):
            index = index.astype(np.int64)  # an empty list is read as floats
        is_mask = index.dtype.kind == "b" and index.shape == (len(self),)
        if not is_mask and (index.dtype.kind not in "iu" or index.ndim != 1):
            raise IndexError(
                f"{index.dtype} {list(index.shape)} chooses no rows; use a slice, integers [n], or "
                f"bool [{len(self)}]"
            )
        if self._is_numpy:
            return index
        import torch

        return torch.from_numpy(index).to(self._some_field.device)

    @property
    def _some_field(self) -> Any:
        return self._arrays()["lane_id"]

    @property
    def _is_numpy(self) -> bool:
        return isinstance(self._some_field, np.ndarray)

    def __copy__(self) -> SequenceBatch[ArrayT]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> SequenceBatch[ArrayT]:
        return self.copy()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The fields themselves are pickled, so unpickling gives a copy."""
        spaces = self.observation_space, self.action_space
        return SequenceBatch, (self.fields, self.spec, *spaces, self._model_inputs)

    # ---- release

    def release(self) -> None:
        """Give the rows back to the sampler; the batch must not be used any more. Idempotent."""
        self._lease.release()

    def forget(self) -> None:
        """Drop all fields; called when the lease has ended."""
        self._fields = {}


def _permutation(n: int, generator: np.random.Generator | torch.Generator) -> np.ndarray:
    """The numbers below n in random order, int64 [n]."""
    if isinstance(generator, np.random.Generator):
        return generator.permutation(n)
    import torch

    return torch.randperm(n, generator=generator, device=generator.device).cpu().numpy()
