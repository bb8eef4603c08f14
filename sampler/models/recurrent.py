"""Recurrent cores that step for inference and unroll over sequences with resets inside them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from sampler.models.scan import scan_gru, scan_lstm


class Core(nn.Module):
    """One LSTM or GRU layer of `size` units.

    The state is one tensor [n, K, size] float32: (h, c) for an LSTM (K=2), h for a GRU (K=1). It is
    set to zero where `is_first` is True, before the step.
    """

    def __init__(self, kind: str, inputs: int, size: int) -> None:
        super().__init__()
        self.is_lstm = kind == "lstm"
        self.size = size
        self.state_shape = (2 if self.is_lstm else 1, size)
        self.rnn: Any = (nn.LSTM if self.is_lstm else nn.GRU)(inputs, size, batch_first=True)
        for name, parameter in self.rnn.named_parameters():
            if "weight" in name:
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)
            if self.is_lstm and name == "bias_ih_l0":
                # A gate's bias is the sum of b_ih and b_hh: the forget gate's is 1 in total.
                nn.init.ones_(parameter[size : 2 * size])

    def step(self, x: Tensor, state: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """x [n, inputs], state [n, K, size], is_first [n] -> (output [n, size], new state)."""
        state = reset(state, is_first)
        rnn = self.rnn
        weights = (rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0, rnn.bias_hh_l0)
        if self.is_lstm:
            h, c = torch.lstm_cell(x, (state[:, 0], state[:, 1]), *weights)
            return h, torch.stack((h, c), dim=1)
        h = torch.gru_cell(x, state[:, 0], *weights)
        return h, h[:, None]

    def unroll(self, x: Tensor, state: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, inputs], state [B, K, size], is_first [B, T] -> (outputs [B, T, size], state).

        Equals T calls of `step`. Gradients do not pass a reset.
        """
        state = reset(state, is_first[:, 0])
        first = is_first.cpu().numpy()
        if not first[:, 1:].any():
            outputs, final = self.rnn(x, self._unpack(state))
            return outputs, self._pack(final)
        if x.is_cuda:
            return self.unroll_packed(x, state, first)
        return self.unroll_scanned(x, state, first)

    def unroll_packed(self, x: Tensor, state: Tensor, first: np.ndarray) -> tuple[Tensor, Tensor]:
        """`unroll` for CUDA; a reset at step 0 has already been applied to `state`.

        Rows are cut into segments at their resets, and one packed call runs all segments side by
        side, with neither padding nor a loop over steps. (On CPUs the packed layer's backward pass
        takes time quadratic in T as soon as segments differ in length.)
        """
        cut = cut_at_resets(first)
        order, inverse, begins, ends = (
            torch.from_numpy(a).to(x.device)
            for a in (cut.order, cut.inverse, cut.row_begins, cut.row_ends)
        )
        initial = state.new_zeros(cut.segments, *self.state_shape).index_copy(0, begins, state)
        packed = PackedSequence(x.flatten(0, 1)[order], torch.from_numpy(cut.batch_sizes))
        outputs, final = self.rnn(packed, self._unpack(initial))
        return outputs.data[inverse].view(*x.shape[:2], self.size), self._pack(final)[ends]

    def unroll_scanned(self, x: Tensor, state: Tensor, first: np.ndarray) -> tuple[Tensor, Tensor]:
        """`unroll` for CPUs; a reset at step 0 has already been applied to `state`."""
        resets = set((np.flatnonzero(first[:, 1:].any(0)) + 1).tolist())
        keep = torch.from_numpy(~first.T[..., None]).to(x.dtype)
        keep[0] = 1.0
        x = x.transpose(0, 1)
        if self.is_lstm:
            outputs, c = scan_lstm(self.rnn, x, state[:, 0], state[:, 1], keep, resets)
            final = torch.stack((outputs[-1], c), dim=1)
        else:
            outputs = scan_gru(self.rnn, x, state[:, 0], keep, resets)
            final = outputs[-1][:, None]
        return outputs.transpose(0, 1), final

    def _unpack(self, state: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """[n, K, size] -> the layer's own state: tensors [1, n, size]."""
        if self.is_lstm:
            return state[None, :, 0].contiguous(), state[None, :, 1].contiguous()
        return state[None, :, 0].contiguous()

    def _pack(self, state: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """The inverse of `_unpack`."""
        if isinstance(state, tuple):
            return torch.stack((state[0][0], state[1][0]), dim=1)
        return state[0][:, None]


def reset(state: Tensor, is_first: Tensor) -> Tensor:
    """`state` [n, ...], zero where `is_first` [n] is True, even if it was NaN."""
    return state.masked_fill(is_first.view(-1, *(1,) * (state.dim() - 1)), 0.0)


class Segments(NamedTuple):
    """Rows [B, T] cut at resets into S segments, longest first, as packed sequences require."""

    segments: int
    """S."""
    order: np.ndarray
    """[B * T] position in the flattened rows of each packed element."""
    inverse: np.ndarray
    """[B * T] packed element of each position."""
    batch_sizes: np.ndarray
    """[longest] number of segments that have a step 0, 1, 2, ..."""
    row_begins: np.ndarray
    """[B] the segment that begins each row."""
    row_ends: np.ndarray
    """[B] the segment that ends each row."""


def cut_at_resets(is_first: np.ndarray) -> Segments:
    """The segments of rows [B, T], of which each begins at step 0 or where `is_first` is True."""
    rows, steps = is_first.shape
    begins = is_first.copy()
    begins[:, 0] = True
    begins = begins.reshape(-1)
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=rows * steps)
    rank = np.empty(len(starts), np.int64)
    rank[np.argsort(-lengths, kind="stable")] = np.arange(len(starts))
    segment = np.cumsum(begins) - 1  # of each position
    age = np.arange(rows * steps) - starts[segment]
    # Packed elements are ordered by step, and within a step from the longest segment on.
    order = np.argsort(age * len(starts) + rank[segment])
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))
    return Segments(
        segments=len(starts),
        order=order,
        inverse=inverse,
        batch_sizes=np.bincount(age),
        row_begins=rank[segment[::steps]],
        row_ends=rank[segment[steps - 1 :: steps]],
    )
