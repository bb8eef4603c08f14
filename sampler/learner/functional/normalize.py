"""Running statistics, and normalization by them.

Statistics are float64 numpy arrays in the learner's process; data may be numpy arrays or torch
tensors on any device, which stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from sampler.batch import SequenceBatch

Array = TypeVar("Array", np.ndarray, Tensor)


class RunningMeanStd:
    """Mean and population variance of everything seen so far, per element of `shape`.

    Batches are merged exactly (Chan, Golub and LeVeque 1979), so the order and the division into
    batches do not matter. Before the first update it is the identity: mean 0, variance 1.

    mean, var: float64 [*shape]. count: float, number of samples.
    """

    def __init__(
        self, shape: tuple[int, ...] = (), count: float = 0.0, eps: float = 1e-8, clip: float = 10.0
    ) -> None:
        """`count`: weight of the initial mean 0 and variance 1; `eps`: added to the variance;
        `clip`: bound of the normalized values."""
        self.mean = np.zeros(shape, np.float64)
        self.var = np.ones(shape, np.float64)
        self.count = float(count)
        self.eps = eps
        self.clip = clip

    def update(self, values: Any, mask: Any = None) -> None:
        """Adds samples [..., *shape]; `mask` [...] (bool) leaves out those that are False."""
        values = values if isinstance(values, Tensor) else np.asarray(values)
        samples = values.reshape(-1, *self.mean.shape)
        if mask is not None:
            samples = samples[mask.reshape(-1)]
        if len(samples) == 0:
            return
        if isinstance(samples, Tensor):
            samples = samples.detach().double()
            mean = samples.mean(0).cpu().numpy()
            var = samples.var(0, correction=0).cpu().numpy()
        else:
            mean = samples.mean(0, dtype=np.float64)
            var = samples.var(0, dtype=np.float64)
        self._merge(mean, var, len(samples))

    def merge(self, other: RunningMeanStd) -> None:
        """Adds the samples that `other` has seen."""
        self._merge(other.mean, other.var, other.count)

    def _merge(self, mean: np.ndarray, var: np.ndarray, count: float) -> None:
        total = self.count + count
        if count == 0:
            return
        delta = mean - self.mean
        squares = self.var * self.count + var * count
        self.var = (squares + delta * delta * (self.count * count / total)) / total
        self.mean = self.mean + delta * (count / total)
        self.count = total

    @property
    def std(self) -> np.ndarray:
        """sqrt(var + eps), never 0; float64 [*shape]."""
        return np.sqrt(self.var + self.eps)

    def normalize(self, values: Array) -> Array:
        """(values - mean) / std within +-clip, float32 (float64 for float64), [..., *shape]."""
        if isinstance(values, Tensor):
            dtype = values.dtype if values.dtype == torch.float64 else torch.float32
            mean = torch.as_tensor(self.mean, dtype=dtype, device=values.device)
            std = torch.as_tensor(self.std, dtype=dtype, device=values.device)
            return ((values.to(dtype) - mean) / std).clamp(-self.clip, self.clip)
        real = np.float64 if values.dtype == np.float64 else np.float32
        scaled = (values - self.mean.astype(real)) / self.std.astype(real)
        return np.clip(scaled, -self.clip, self.clip, dtype=real)

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of mean, var and count, float64 tensors."""
        return {
            "mean": torch.tensor(self.mean),
            "var": torch.tensor(self.var),
            "count": torch.tensor(self.count, dtype=torch.float64),
        }

    def state(self) -> dict[str, Tensor]:
        """The same as `state_dict`."""
        return self.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state_dict()`."""
        self.mean = np.asarray(state["mean"]).astype(np.float64)
        self.var = np.asarray(state["var"]).astype(np.float64)
        self.count = float(state["count"])


class RewardScaler:
    """Divides rewards by the running standard deviation of the discounted return.

    Every lane has its accumulator R <- gamma R + r, carried from row to row and restarted when an
    episode ends; the mean is not subtracted (Engstrom et al. 2020, section 2).
    """

    def __init__(self, gamma: float, eps: float = 1e-8, clip: float = 10.0, count: float = 0.0):
        self.gamma = gamma
        self.statistics = RunningMeanStd((), count, eps, clip)
        self.returns = np.zeros(0, np.float64)  # per lane

    def update(
        self,
        rewards: np.ndarray,
        ends: np.ndarray,
        lane_id: np.ndarray,
        mask: np.ndarray | None = None,
        overlap: int = 0,
        begins: np.ndarray | None = None,
    ) -> None:
        """Adds rows: `rewards` [B, T]; `ends` [B, T] (terminated or truncated); `lane_id` [B].

        Rows of one lane must be in the order of time. `mask` [B, T]: False steps are not counted
        and restart the accumulator. `overlap`: first steps of each row that repeat an earlier row.
        `begins` [B] (bool): rows whose first new step begins an episode, whatever came before.
        """
        rewards, ends = rewards[:, overlap:], ends[:, overlap:]
        mask = np.ones(rewards.shape, bool) if mask is None else mask[:, overlap:]
        begins = np.zeros(len(rewards), bool) if begins is None else begins
        missing = int(lane_id.max(initial=-1)) + 1 - len(self.returns)
        if missing > 0:
            self.returns = np.pad(self.returns, (0, missing))
        returns = np.empty(rewards.shape, np.float64)
        for rows in _rounds(lane_id):
            current = np.where(begins[rows], 0.0, self.returns[lane_id[rows]])
            for t in range(rewards.shape[1]):
                current = np.where(mask[rows, t], self.gamma * current + rewards[rows, t], 0.0)
                returns[rows, t] = current
                current = np.where(ends[rows, t], 0.0, current)
            self.returns[lane_id[rows]] = current
        self.statistics.update(returns, mask)

    def count(self, rewards: np.ndarray, batch: SequenceBatch) -> None:
        """Adds the rewards [B, T] to be learned from a batch, but for rows that were given up and
        for what is not finite, which would spoil the statistics for ever.

        A lane whose environment was replaced begins an episode though its last one never ended
        (which rows that overlap do not show).
        """
        overlap, real = batch.spec.overlap, batch.mask
        order = np.lexsort((batch.age[:, 0], batch.episode_id[:, 0], batch.lane_id))
        order = order[real[order].any(1)]
        counted = real & np.isfinite(rewards)
        self.update(
            np.where(counted, rewards, 0)[order],
            (batch.terminated | batch.truncated)[order],
            batch.lane_id[order],
            counted[order],
            overlap,
            batch.is_first[order, overlap],
        )

    def scale(self, rewards: Array) -> Array:
        """rewards / std of the returns, within +-clip; any shape, numpy or torch, float32."""
        scale, clip = 1 / float(self.statistics.std), self.statistics.clip
        if isinstance(rewards, Tensor):
            return (rewards * scale).clamp(-clip, clip)
        return np.clip(rewards * np.float32(scale), -clip, clip)

    def state_dict(self) -> dict[str, Tensor]:
        """The statistics' state and the lanes' accumulators."""
        return {**self.statistics.state_dict(), "returns": torch.tensor(self.returns)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state_dict()`."""
        self.statistics.load_state_dict(state)
        self.returns = np.asarray(state["returns"]).astype(np.float64)


@torch.no_grad()
def normalize_advantages(
    advantages: Tensor, mask: Tensor | None = None, eps: float = 1e-8
) -> Tensor:
    """(A - mean) / (std + eps) over the valid entries of a minibatch; masked entries become 0.

    `advantages`, `mask`: [B, T]. The standard deviation is the unbiased one; a minibatch with fewer
    than two valid entries is only centred.
    """
    valid = advantages if mask is None else advantages[mask.bool()]
    centred = advantages - valid.mean() if valid.numel() else advantages
    if valid.numel() > 1:
        centred = centred / (valid.std() + eps)
    return centred if mask is None else centred.masked_fill(~mask.bool(), 0)


def _rounds(lane_id: np.ndarray) -> list[np.ndarray]:
    """Row indices in rounds: every lane at most once in each, its rows in their order."""
    order = np.argsort(lane_id, kind="stable")
    sorted_lanes = lane_id[order]
    first = np.searchsorted(sorted_lanes, sorted_lanes, side="left")
    rank = np.arange(len(order)) - first
    return [order[rank == i] for i in range(rank.max(initial=-1) + 1)]
