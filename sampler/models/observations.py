"""From nested observations to images and one float vector, and from these to features."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sampler.errors import ConfigError
from sampler.models.config import ModelConfig
from sampler.models.images import ImageEncoder, is_image, pixel_maximum
from sampler.models.layers import flatten_leading, full_precision, mlp
from sampler.models.normalizer import Normalizer
from sampler.spaces import Leaf, flatten, leaves


class VectorEncoding(nn.Module):
    """One leaf [N, *shape] -> [N, size] float32.

    Choices become one-hot vectors (all zeros for a value outside the space), integers and images
    are divided by their largest magnitude, floats stay as they are.
    """

    choices: Tensor | None
    sizes: Tensor | None

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        space = leaf.space
        self.is_float = isinstance(space, spaces.Box) and np.issubdtype(leaf.dtype, np.floating)
        self.factor = 1.0
        choices: np.ndarray | None = None
        sizes: np.ndarray | None = None
        if isinstance(space, spaces.Discrete):
            self.size = int(space.n)
            choices = space.start + np.arange(space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            sizes = space.nvec.reshape(-1)
            self.size = int(sizes.sum())
            values = [s + np.arange(n) for s, n in zip(space.start.reshape(-1), sizes, strict=True)]
            choices = np.concatenate(values)
        else:
            self.size = int(np.prod(leaf.shape))
            if isinstance(space, spaces.Box) and not self.is_float:
                self.factor = 1.0 / pixel_maximum(space)
        # Constants that move with the model but are not part of its weights.
        for name, array in (("choices", choices), ("sizes", sizes)):
            constant = None if array is None else torch.as_tensor(array, dtype=torch.int64)
            self.register_buffer(name, constant, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.choices is None:
            x = x.reshape(len(x), self.size).float()
            return x * self.factor if self.factor != 1.0 else x
        if self.sizes is None:
            return (x.reshape(-1, 1) == self.choices).float()
        repeated = x.flatten(1).repeat_interleave(self.sizes, dim=1, output_size=self.size)
        return (repeated == self.choices).float()


class Observations(nn.Module):
    """Splits observations into images, as they are, and one vector [N, size] float32.

    Floats come first in the vector; with `normalize` they are normalized.
    """

    def __init__(self, space: gym.Space, config: ModelConfig) -> None:
        super().__init__()
        self.space = space
        parts = leaves(space, "obs")
        self.images = [
            i for i, leaf in enumerate(parts) if config.encoder != "mlp" and is_image(leaf.space)
        ]
        self.image_spaces = [parts[i].space for i in self.images]
        encodings = {i: VectorEncoding(p) for i, p in enumerate(parts) if i not in self.images}
        floats = [i for i, encoding in encodings.items() if encoding.is_float]
        self._order = floats + [i for i in encodings if i not in floats]
        self._floats = len(floats)
        self._ranks = [len(leaf.shape) for leaf in parts]
        self.encodings = nn.ModuleList(encodings[i] for i in self._order)
        self.size = sum(encoding.size for encoding in encodings.values())
        self.float_size = sum(encodings[i].size for i in floats)
        if not self.images and not self.size:
            raise ConfigError(f"the observation space {space} holds no numbers; add some to it")
        normalize = config.normalize_observations and self.float_size > 0
        self.normalizer = Normalizer(self.float_size) if normalize else None

    def forward(self, obs: Any) -> tuple[list[Tensor], Tensor | None]:
        """obs: leaves [N, ...]. Returns the images and the vector (None where it is empty)."""
        parts = flatten(self.space, obs)
        vectors = [encode(parts[i]) for encode, i in zip(self.encodings, self._order, strict=True)]
        if self.normalizer is not None:
            floats, vectors = vectors[: self._floats], vectors[self._floats :]
            vectors.insert(0, self.normalizer(join(floats)))
        return [parts[i] for i in self.images], join(vectors) if vectors else None

    def update_normalizer(self, obs: Any, mask: Tensor | None) -> None:
        """Add observations (leaves [..., *shape]) to the statistics where `mask` [...] is True."""
        if self.normalizer is None:
            return
        parts = flatten(self.space, obs)
        floats = []
        for encode, i in zip(self.encodings[: self._floats], self._order, strict=False):
            leading = parts[i].dim() - self._ranks[i]
            floats.append(encode(flatten_leading(parts[i], leading)))
        self.normalizer.update(join(floats), mask)


def join(vectors: list[Tensor]) -> Tensor:
    """Concatenated along the last dimension."""
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1)


class Encoder(nn.Module):
    """Features [N, size] float32: every image's, then those of the vector."""

    def __init__(self, observations: Observations, config: ModelConfig) -> None:
        """config: resolved."""
        super().__init__()
        assert config.hidden is not None
        assert config.activation is not None
        self.images = nn.ModuleList(
            ImageEncoder(space, config.encoder, config.image_features)
            for space in observations.image_spaces
        )
        self.size = len(self.images) * config.image_features
        self.vector: nn.Module | None = None
        if observations.size:
            self.vector = mlp(observations.size, config.hidden, config.activation)
            self.size += config.hidden[-1] if config.hidden else observations.size

    def forward(self, images: list[Tensor], vector: Tensor | None) -> Tensor:
        features = [encode(image) for encode, image in zip(self.images, images, strict=True)]
        if self.vector is not None:
            assert vector is not None
            with full_precision(vector.device):
                features.append(self.vector(vector))
        return join(features)

    def set_precision(self, dtype: torch.dtype) -> None:
        """Convert the image encoders' weights."""
        for encoder in self.images:
            encoder.set_precision(dtype)  # type: ignore[operator]
