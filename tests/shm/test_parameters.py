from __future__ import annotations

import numpy as np
import torch
from torch import nn

from sampler.shm.parameters import WORD, ParameterBlock


class Mixed(nn.Module):
    """Parameters and buffers of several dtypes and sizes that are not whole words."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 5))
        self.lower = nn.Parameter(torch.randn(7).to(torch.bfloat16))
        self.register_buffer("flags", torch.tensor([True, False, True]))
        self.register_buffer("count", torch.tensor(12345678901))
        self.register_buffer("nothing", torch.zeros(0, 4))
        self.register_buffer("scalar", torch.tensor(2.5, dtype=torch.float64))


def test_a_model_goes_through_a_block_unchanged():
    source, target = Mixed(), Mixed()
    block = ParameterBlock(source)
    assert block.nbytes % WORD == 0
    words = np.zeros(block.nbytes // WORD, np.int64)
    block.copy(source.state_dict(), block.views(words))
    for name, view in ParameterBlock(target).views(words).items():
        expected = source.state_dict()[name]
        assert view.dtype == expected.dtype
        assert torch.equal(view, expected), name
    ParameterBlock.copy(block.views(words), target.state_dict())
    for name, tensor in target.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[name])


def test_tensors_do_not_overlap_and_begin_on_words():
    block = ParameterBlock(Mixed())
    ends = 0
    for _, dtype, shape, start, size in block.entries:
        assert start % WORD == 0
        assert start >= ends
        assert size == torch.zeros(shape, dtype=dtype).numel() * dtype.itemsize
        ends = start + size
    assert ends <= block.nbytes


def test_other_precisions_are_converted():
    source = nn.Linear(3, 2)
    block = ParameterBlock(source)
    words = np.zeros(block.nbytes // WORD, np.int64)
    lower = {name: tensor.bfloat16() for name, tensor in source.state_dict().items()}
    block.copy(lower, block.views(words))
    for name, view in block.views(words).items():
        assert torch.equal(view, lower[name].float())


def test_a_model_without_parameters():
    assert ParameterBlock(nn.Tanh()).nbytes == 0
    assert ParameterBlock(nn.Tanh()).views(np.zeros(1, np.int64)) == {}
