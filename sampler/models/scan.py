"""LSTM and GRU over time-major sequences [T, B, ...] with resets, by hand-written backpropagation.

On CPUs this takes about as long, with any number of resets, as torch's layer takes without resets;
with packed sequences torch takes up to five times as long. The large operations (input projection,
weight gradients, derivatives of the gates) are done for all steps at once, and only the recurrence
itself, one matrix product per step each way, is a loop. Formulas and the order of the gates are
those of torch.nn.LSTM and torch.nn.GRU.

keep: [T, B, 1] float, 0 where the state is zeroed before the step, else 1. resets: the steps at
which any row is zeroed, so that others need no multiplication.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def scan_lstm(
    layer: nn.LSTM, x: Tensor, h: Tensor, c: Tensor, keep: Tensor, resets: set[int]
) -> tuple[Tensor, Tensor]:
    """x [T, B, inputs], h and c [B, H] before step 0 -> (outputs [T, B, H], final c [B, H])."""
    weights: Any = layer
    projected = F.linear(x, weights.weight_ih_l0, weights.bias_ih_l0 + weights.bias_hh_l0)
    return _LSTM.apply(projected, weights.weight_hh_l0, h, c, keep, resets)


def scan_gru(layer: nn.GRU, x: Tensor, h: Tensor, keep: Tensor, resets: set[int]) -> Tensor:
    """x [T, B, inputs], h [B, H] before step 0 -> outputs [T, B, H]."""
    weights: Any = layer
    projected = F.linear(x, weights.weight_ih_l0, weights.bias_ih_l0)
    return _GRU.apply(projected, weights.weight_hh_l0, weights.bias_hh_l0, h, keep, resets)


def shifted(first: Tensor, states: Tensor, keep: Tensor) -> Tensor:
    """The state that enters each step: `first` [B, H], then `states` [:-1], zeroed at resets."""
    return torch.cat((first[None], states[:-1])) * keep


class _LSTM(torch.autograd.Function):
    """Gates in the order i, f, g, o: c' = f c + i g, h' = o tanh(c')."""

    @staticmethod
    def forward(ctx, projected, weight, h0, c0, keep, resets):
        steps, rows, _ = projected.shape
        size = h0.shape[-1]
        gates = torch.empty_like(projected)
        hs = projected.new_empty(steps, rows, size)
        cs = torch.empty_like(hs)
        transposed = weight.t()
        h, c = h0, c0
        for t in range(steps):
            if t in resets:
                h, c = h * keep[t], c * keep[t]
            now = torch.addmm(projected[t], h, transposed, out=gates[t])
            now[:, : 2 * size].sigmoid_()
            now[:, 3 * size :].sigmoid_()
            i, f, g, o = now.chunk(4, dim=-1)
            g.tanh_()
            c = torch.mul(f, c, out=cs[t]).addcmul_(i, g)
            h = torch.mul(o, c.tanh(), out=hs[t])
        ctx.resets = resets
        ctx.save_for_backward(weight, h0, c0, keep, gates, hs, cs)
        return hs, cs[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_hs, grad_c):
        weight, h0, c0, keep, gates, hs, cs = ctx.saved_tensors
        steps, rows, size = hs.shape
        i, f, g, o = gates.chunk(4, dim=-1)
        tanh_c = cs.tanh()
        # Before the activations: these times d c for i, f and g, times d h for o.
        slopes = gates.new_empty(steps, rows, 4, size)
        torch.mul(i * (1 - i), g, out=slopes[:, :, 0])
        torch.mul(f * (1 - f), shifted(c0, cs, keep), out=slopes[:, :, 1])
        torch.mul(1 - g * g, i, out=slopes[:, :, 2])
        torch.mul(o * (1 - o), tanh_c, out=slopes[:, :, 3])
        through = o * (1 - tanh_c * tanh_c)  # d c' / d h'
        dh, dc = torch.zeros_like(h0), grad_c
        for t in reversed(range(steps)):
            dh = dh + grad_hs[t]
            dc = torch.addcmul(dc, dh, through[t])
            slopes[t, :, :3] *= dc[:, None]
            slopes[t, :, 3] *= dh
            dh = slopes[t].view(rows, -1) @ weight
            dc = dc * f[t]
            if t in ctx.resets:
                dh, dc = dh * keep[t], dc * keep[t]
        grad_gates = slopes.view(steps * rows, -1)
        grad_weight = grad_gates.t() @ shifted(h0, hs, keep).flatten(0, 1)
        return grad_gates.view(steps, rows, -1), grad_weight, dh, dc, None, None


class _GRU(torch.autograd.Function):
    """Gates in the order r, z, n: n = tanh(x_n + r (W h + b)_n), h' = n + z (h - n)."""

    @staticmethod
    def forward(ctx, projected, weight, bias, h0, keep, resets):
        steps, rows, _ = projected.shape
        size = h0.shape[-1]
        gates = torch.empty_like(projected)
        recurrent = torch.empty_like(projected)  # W h + b
        hs = projected.new_empty(steps, rows, size)
        transposed = weight.t()
        h = h0
        for t in range(steps):
            if t in resets:
                h = h * keep[t]
            linear = torch.addmm(bias, h, transposed, out=recurrent[t])
            now = gates[t]
            torch.add(projected[t, :, : 2 * size], linear[:, : 2 * size], out=now[:, : 2 * size])
            now[:, : 2 * size].sigmoid_()
            r, z, n = now.chunk(3, dim=-1)
            torch.addcmul(projected[t, :, 2 * size :], r, linear[:, 2 * size :], out=n).tanh_()
            h = torch.lerp(n, h, z, out=hs[t])
        ctx.resets = resets
        ctx.save_for_backward(weight, h0, keep, gates, recurrent[..., 2 * size :], hs)
        return hs

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_hs):
        weight, h0, keep, gates, recurrent_n, hs = ctx.saved_tensors
        steps, rows, size = hs.shape
        r, z, n = gates.chunk(3, dim=-1)
        h_in = shifted(h0, hs, keep)
        # Before the activations, all in terms of d h': d r, d z, d (W h + b)_n and d n.
        slopes = gates.new_empty(steps, rows, 4, size)
        slope_n = torch.mul(1 - z, 1 - n * n, out=slopes[:, :, 3])
        torch.mul(slope_n, r, out=slopes[:, :, 2])
        torch.mul(slopes[:, :, 2], (1 - r) * recurrent_n, out=slopes[:, :, 0])
        torch.mul(h_in - n, z * (1 - z), out=slopes[:, :, 1])
        dh = torch.zeros_like(h0)
        for t in reversed(range(steps)):
            dh = dh + grad_hs[t]
            slopes[t] *= dh[:, None]
            dh = torch.addmm(dh * z[t], slopes[t, :, :3].reshape(rows, -1), weight)
            if t in ctx.resets:
                dh = dh * keep[t]
        grad_recurrent = slopes[:, :, :3].reshape(steps * rows, -1)
        grad_projected = slopes[:, :, [0, 1, 3]].reshape(steps, rows, -1)
        grad_weight = grad_recurrent.t() @ h_in.flatten(0, 1)
        return grad_projected, grad_weight, grad_recurrent.sum(0), dh, None, None
