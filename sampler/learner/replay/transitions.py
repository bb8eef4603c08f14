"""A batch as flat n-step transitions, for a replay of one's own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sampler.batch import SequenceBatch
from sampler.errors import ConfigError
from sampler.learner.replay.n_step import fold_windows
from sampler.shm.store import FRAMES
from sampler.spaces import flatten, frame_stacks, leaves, unflatten


class Transitions(NamedTuple):
    """N transitions (x_t, a_t, r_t + ... + gamma^(k-1) r_(t+k-1), x_(t+k)), as copies in numpy.

    In the order of the rows and of their steps.
    """

    obs: Any
    """[N, ...], nested like the space; stacks [N, S, H, W]."""
    actions: Any
    """[N, ...], nested like the space."""
    rewards: np.ndarray
    """[N] float32: the discounted sum of k rewards."""
    discounts: np.ndarray
    """[N] float32: of the value of `next_obs`: gamma^k, or 0 where the episode terminated."""
    next_obs: Any
    """[N, ...], like `obs`: the final observation where the episode ended. Where `terminated`, it
    may be of the next episode (some vector environments), and must not be used."""
    terminated: np.ndarray
    """[N] bool: the episode terminated within the k steps."""
    truncated: np.ndarray
    """[N] bool: it was cut off after them, so that the value of `next_obs` still counts."""
    lengths: np.ndarray
    """[N] int64: k, which is n, or less where the episode or the row ended before."""
    action_mask: np.ndarray | None
    """[N, A] bool: actions allowed at `obs`; None where the environment gives no masks."""
    next_action_mask: np.ndarray | None
    """[N, A] bool: those at `next_obs`."""
    rows: np.ndarray
    """[N] int64: rows of the batch, to pick other fields: `batch.log_probs[t.rows, t.steps]`."""
    steps: np.ndarray
    """[N] int64: steps t in these rows."""


def transitions(batch: SequenceBatch, n: int = 1, gamma: float = 0.99) -> Transitions:
    """The transitions of a batch's real steps, each of n steps at most.

    Steps with mask=False, which only reset or were given up, start none and are part of none. A
    window ends with its episode, and at the end of its row: to have n steps there, too, set the
    sampler's `overlap` to n - 1 or more. Whatever the overlap, every step of a lane starts exactly
    one transition, since a row leaves its last `overlap` steps to the lane's next row.

    batch: as it comes from the sampler, or as tensors. Raises ConfigError for n < 1 and for gamma
    outside 0 to 1.
    """
    if n < 1:
        raise ConfigError(f"n={n} must be at least 1")
    if not 0 <= gamma <= 1:
        raise ConfigError(f"gamma={gamma} must be between 0 and 1")
    fields = {name: _array(value) for name, value in batch.items()}
    terminated, mask = fields["terminated"], fields["mask"]
    length = mask.shape[1]
    cuts = terminated | fields["truncated"]
    cuts[:, -1] = True  # nothing later is known
    # [B, T, n] views of the steps t .. t+n-1; those after the row's end are never reached
    parts = fields["rewards"], gamma * ~terminated, cuts, mask
    padded = (np.pad(array, ((0, 0), (0, n - 1))) for array in parts)
    windows = fold_windows(*(np.lib.stride_tricks.sliding_window_view(a, n, 1) for a in padded))
    starts = length - batch.spec.overlap
    rows, steps = windows.valid[:, :starts].nonzero()
    lengths = windows.lengths[rows, steps]
    last = steps + lengths - 1

    def observed(at: np.ndarray) -> Any:
        if FRAMES in fields:
            frames, age = fields[FRAMES], fields["age"][rows, at]
            out = np.empty((len(rows), batch.spec.frame_stack, *frames.shape[2:]), frames.dtype)
            oldest = rows * frames.shape[1] + at
            frame_stacks.gather(frames.reshape(-1, *frames.shape[2:]), oldest, age, out)
            return out
        space = batch.observation_space
        return unflatten(space, [fields[leaf.name][rows, at] for leaf in leaves(space, "obs")])

    actions = [_array(leaf)[rows, steps] for leaf in flatten(batch.action_space, batch.actions)]
    masks = fields.get("action_mask")
    return Transitions(
        obs=observed(steps),
        actions=unflatten(batch.action_space, actions),
        rewards=windows.returns[rows, steps].astype(np.float32),
        discounts=windows.discounts[rows, steps].astype(np.float32),
        next_obs=observed(last + 1),
        terminated=terminated[rows, last],
        truncated=fields["truncated"][rows, last] & ~terminated[rows, last],
        lengths=lengths,
        action_mask=None if masks is None else masks[rows, steps],
        next_action_mask=None if masks is None else masks[rows, last + 1],
        rows=rows,
        steps=steps,
    )


def _array(value: Any) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else value.cpu().numpy()
