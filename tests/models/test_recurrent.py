"""Recurrent cores: unrolling with resets equals separate unrolls, which equal stepping."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from sampler.models.recurrent import Core, cut_at_resets, reset

ROWS, STEPS, INPUTS, UNITS = 5, 12, 6, 8
KINDS = ["lstm", "gru"]


@pytest.fixture(params=KINDS)
def core(request) -> Core:
    torch.manual_seed(0)
    return Core(request.param, INPUTS, UNITS)


def inputs(core: Core, seed: int = 1):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, STEPS, INPUTS, generator=g)
    return x, torch.randn(ROWS, *core.state_shape, generator=g)


def stepped(core, x, state, is_first):
    outputs = []
    for t in range(x.shape[1]):
        output, state = core.step(x[:, t], state, is_first[:, t])
        outputs.append(output)
    return torch.stack(outputs, 1), state


WAYS = {
    "unroll": lambda core, x, state, first: core.unroll(x, state, first),
    "packed": lambda core, x, state, first: core.unroll_packed(
        x, reset(state, first[:, 0]), first.numpy()
    ),
    "scanned": lambda core, x, state, first: core.unroll_scanned(
        x, reset(state, first[:, 0]), first.numpy()
    ),
}


def resets(density: float, seed: int = 2) -> torch.Tensor:
    return torch.rand(ROWS, STEPS, generator=torch.Generator().manual_seed(seed)) < density


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 1.0])
def test_unroll_equals_stepping(core, way, density):
    x, state = inputs(core)
    is_first = resets(density)
    expected, expected_state = stepped(core, x, state, is_first)
    outputs, final = WAYS[way](core, x, state, is_first)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(final, expected_state, rtol=0, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_gradients_of_unrolling_equal_those_of_stepping(core, way, density):
    core.double()
    is_first = resets(density)
    gradients = []
    for run in (WAYS[way], stepped):
        core.zero_grad()
        x, state = (part.double().requires_grad_() for part in inputs(core))
        outputs, final = run(core, x, state, is_first)
        (outputs.square().sum() + final.sin().sum()).backward()
        gradients.append([x.grad, state.grad, *(p.grad for p in core.parameters())])
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_unroll_with_resets_equals_separate_unrolls(core):
    x, state = inputs(core)
    is_first = resets(0.3)
    outputs, final = core.unroll(x, state, is_first)
    for row in range(ROWS):
        cuts = [0, *(t for t in range(1, STEPS) if is_first[row, t]), STEPS]
        for start, end in pairwise(cuts):
            fresh = start > 0 or is_first[row, 0]
            begin = torch.zeros_like(state[row]) if fresh else state[row]
            none = torch.zeros(1, end - start, dtype=torch.bool)
            expected, last = core.unroll(x[row, None, start:end], begin[None], none)
            torch.testing.assert_close(outputs[row, start:end], expected[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(final[row], last[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_cut_at_resets(core, way):
    x, state = (part.requires_grad_() for part in inputs(core))
    is_first = torch.zeros(ROWS, STEPS, dtype=torch.bool)
    is_first[0, 5] = is_first[1, 0] = True
    outputs, _ = WAYS[way](core, x, state, is_first)
    outputs[:, -1].sum().backward()
    assert (x.grad[0, :5] == 0).all()
    assert (x.grad[0, 5:].abs().sum(-1) > 0).all()
    assert (x.grad[1:].abs().sum(-1) > 0).all()
    assert (state.grad[:2] == 0).all()
    assert (state.grad[2:].abs().sum((-2, -1)) > 0).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("density", [0.0, 0.3])
def test_cuda_agrees_with_the_cpu(core, density):
    x, state = inputs(core)
    is_first = resets(density)
    expected, expected_state = core.unroll(x, state, is_first)
    core.cuda()
    outputs, final = core.unroll(x.cuda(), state.cuda(), is_first.cuda())
    torch.testing.assert_close(outputs.cpu(), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(final.cpu(), expected_state, rtol=0, atol=1e-4)


def test_a_state_that_is_reset_may_hold_anything(core):
    x, _ = inputs(core)
    garbage = torch.full((ROWS, *core.state_shape), float("nan"))
    is_first = torch.zeros(ROWS, STEPS, dtype=torch.bool)
    is_first[:, 0] = True
    outputs, final = core.unroll(x, garbage, is_first)
    expected, _ = core.unroll(x, torch.zeros_like(garbage), torch.zeros_like(is_first))
    torch.testing.assert_close(outputs, expected)
    assert final.isfinite().all()


def test_one_step_rows(core):
    x, state = inputs(core)
    first = torch.tensor([[True], [False], [False], [True], [False]])
    outputs, final = core.unroll(x[:, :1], state, first)
    expected, expected_state = core.step(x[:, 0], state, first[:, 0])
    torch.testing.assert_close(outputs[:, 0], expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(final, expected_state, rtol=0, atol=1e-5)


def test_segments_cover_every_position_once_longest_first():
    rng = np.random.default_rng(0)
    for _ in range(20):
        is_first = rng.random((rng.integers(1, 6), rng.integers(1, 9))) < 0.4
        cut = cut_at_resets(is_first)
        positions = np.arange(is_first.size)
        assert np.array_equal(np.sort(cut.order), positions)
        assert np.array_equal(cut.order[cut.inverse], positions)
        assert cut.batch_sizes.sum() == is_first.size
        assert (np.diff(cut.batch_sizes) <= 0).all()
        assert cut.segments == cut.batch_sizes[0] == len(is_first) + is_first[:, 1:].sum()


def test_the_forget_gate_begins_open():
    core = Core("lstm", INPUTS, UNITS)
    total = core.rnn.bias_ih_l0 + core.rnn.bias_hh_l0
    expected = torch.zeros(4 * UNITS)
    expected[UNITS : 2 * UNITS] = 1.0
    assert torch.equal(total, expected)


def test_states_are_one_tensor():
    assert Core("lstm", 3, 4).state_shape == (2, 4)
    assert Core("gru", 3, 4).state_shape == (1, 4)


def test_unroll_equals_torch_s_own_layer():
    core = Core("lstm", INPUTS, UNITS)
    x, state = inputs(core)
    layer = nn.LSTM(INPUTS, UNITS, batch_first=True)
    layer.load_state_dict(core.rnn.state_dict())
    expected, (h, c) = layer(x, (state[:, 0][None].contiguous(), state[:, 1][None].contiguous()))
    outputs, final = core.unroll(x, state, torch.zeros(ROWS, STEPS, dtype=torch.bool))
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(final, torch.stack((h[0], c[0]), 1))
