"""Models of small sizes, and random elements of spaces."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sampler.models import ModelConfig


@pytest.fixture
def build():
    """build(maker, observation_space, action_space, seed=0, **settings): a small model."""

    def make(maker, observations, actions, seed: int = 0, **settings):
        torch.manual_seed(seed)
        sizes = {"image_features": 16, "hidden": (8,), "core_size": 8, "head_size": 8}
        return maker(observations, actions, ModelConfig(**{**sizes, **settings}))

    return make


@pytest.fixture
def samples():
    """samples(space, *shape, seed=0): random elements of a space, as tensors [*shape, ...]."""

    def stack(parts, shape):
        if isinstance(parts[0], dict):
            return {key: stack([part[key] for part in parts], shape) for key in parts[0]}
        if isinstance(parts[0], tuple):
            return tuple(stack(list(part), shape) for part in zip(*parts, strict=True))
        array = np.stack(parts)
        return torch.from_numpy(array.reshape(*shape, *array.shape[1:]))

    def draw(space, *shape: int, seed: int = 0):
        space.seed(seed)
        return stack([space.sample() for _ in range(int(np.prod(shape)))], shape)

    return draw
