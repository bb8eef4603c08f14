"""Convolutional encoders: from image observations in their own dtype and layout to features."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from sampler.errors import ConfigError
from sampler.models.layers import compute_dtype, orthogonal

SMALLEST_IMAGE = 7  # pixels; anything with shorter sides is a table of numbers
SMALLEST_NATURE = 36  # pixels; the smallest that the Nature network's kernels fit into


def is_image(space: gym.Space) -> bool:
    """Whether a space is read as an image.

    A Box of rank 3 (channels first or last), of rank 2 (one channel, uint8), or of rank 4 (a stack
    of images with channels last, uint8), whose sides are at least 7 pixels.
    """
    if not isinstance(space, spaces.Box):
        return False
    if len(space.shape) != 3 and not (len(space.shape) in (2, 4) and space.dtype == np.uint8):
        return False
    return min(ImageLayout(space.shape).size) >= SMALLEST_IMAGE


class ImageLayout:
    """The positions of channels and sides in an image's shape.

    (C, H, W), or (H, W, C) where the last dimension is smaller than the first; (H, W); a stack
    (S, H, W, C) has S * C channels.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.stacked = len(shape) == 4
        self.single = len(shape) == 2
        self.channels_last = len(shape) == 3 and shape[2] < shape[0]
        if self.stacked:
            self.channels, self.size = shape[0] * shape[3], shape[1:3]
        elif self.single:
            self.channels, self.size = 1, shape
        elif self.channels_last:
            self.channels, self.size = shape[2], shape[:2]
        else:
            self.channels, self.size = shape[0], shape[1:]

    def to_channels_first(self, images: Tensor) -> Tensor:
        """[N, *shape] -> [N, C, H, W]; a view, except for stacks of images."""
        if self.channels_last:
            return images.permute(0, 3, 1, 2)
        if self.single:
            return images[:, None]
        if self.stacked:
            return images.permute(0, 1, 4, 2, 3).flatten(1, 2)
        return images


class ScaledConv2d(nn.Conv2d):
    """A convolution over images divided by `maximum`: the division is done on the weights.

    Integer pixels thus need one conversion and no further pass, and they are exact in bfloat16. The
    weights stay float32 and are converted at each call, which rounds them only once.
    """

    def __init__(self, channels: int, out: int, maximum: float, *args, **kwargs) -> None:
        super().__init__(channels, out, *args, **kwargs)
        self.factor = 1.0 / maximum

    def forward(self, images: Tensor) -> Tensor:
        # With so few channels, a pure forward pass is faster on CPUs with channels first.
        inference = not (torch.is_grad_enabled() or images.is_cuda)
        layout = torch.contiguous_format if inference else torch.preserve_format
        weight = (self.weight * self.factor).to(images.dtype, memory_format=layout)
        bias = self.bias.to(images.dtype)  # type: ignore[union-attr]
        return F.conv2d(images, weight, bias, self.stride, self.padding)


class ImageEncoder(nn.Module):
    """images [N, *shape] in the space's dtype -> features [N, size] float32.

    Raises ConfigError if the network does not fit the image.
    """

    def __init__(self, space: gym.Space, kind: str, size: int) -> None:
        super().__init__()
        assert isinstance(space, spaces.Box)
        self.layout = ImageLayout(space.shape)
        self.size = size
        height, width = self.layout.size
        if kind == "auto":
            kind = "nature" if min(height, width) >= SMALLEST_NATURE else "small"
        elif kind == "nature" and min(height, width) < SMALLEST_NATURE:
            raise ConfigError(
                f"encoder='nature' needs images of {SMALLEST_NATURE} pixels a side, "
                f"not {height}x{width}; use 'impala' or 'auto'"
            )
        build = {"nature": nature, "impala": impala, "small": small}[kind]
        self.convolutions = build(self.layout.channels, pixel_maximum(space))
        self.convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with torch.no_grad():
            outputs = self.convolutions(torch.zeros(1, self.layout.channels, height, width))
        self.linear = orthogonal(nn.Linear(outputs.numel(), size))

    def forward(self, images: Tensor) -> Tensor:
        images = self.layout.to_channels_first(images)
        x = self.convolutions(images.to(compute_dtype(images.device, self.linear.weight.dtype)))
        x = x.permute(0, 2, 3, 1).flatten(1)  # a view of channels-last outputs
        return F.relu(self.linear(x)).float()

    def set_precision(self, dtype: torch.dtype) -> None:
        """Convert the weights, except those of the first convolution."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear) and not isinstance(module, ScaledConv2d):
                module.to(dtype)


def pixel_maximum(space: spaces.Box) -> float:
    """The largest magnitude that the bounds allow, or 1 if it is not finite."""
    largest = max(abs(float(space.low.min())), abs(float(space.high.max())))
    return largest if 0 < largest < 1e6 else 1.0


def nature(channels: int, maximum: float) -> nn.Sequential:
    """Mnih et al. (2015)."""
    return nn.Sequential(
        orthogonal(ScaledConv2d(channels, 32, maximum, 8, stride=4)),
        nn.ReLU(inplace=True),
        orthogonal(nn.Conv2d(32, 64, 4, stride=2)),
        nn.ReLU(inplace=True),
        orthogonal(nn.Conv2d(64, 64, 3)),
        nn.ReLU(inplace=True),
    )


def small(channels: int, maximum: float) -> nn.Sequential:
    """For grids of a few pixels a side: three 3x3 convolutions, only one of them with stride 2."""
    return nn.Sequential(
        orthogonal(ScaledConv2d(channels, 32, maximum, 3, padding=1)),
        nn.ReLU(inplace=True),
        orthogonal(nn.Conv2d(32, 64, 3, stride=2, padding=1)),
        nn.ReLU(inplace=True),
        orthogonal(nn.Conv2d(64, 64, 3, padding=1)),
        nn.ReLU(inplace=True),
    )


def impala(channels: int, maximum: float) -> nn.Sequential:
    """The deep residual network of Espeholt et al. (2018), without its last linear layer."""
    layers: list[nn.Module] = []
    for index, out in enumerate((16, 32, 32)):
        if index == 0:
            layers.append(orthogonal(ScaledConv2d(channels, out, maximum, 3, padding=1)))
        else:
            layers.append(orthogonal(nn.Conv2d(channels, out, 3, padding=1)))
        layers += [nn.MaxPool2d(3, stride=2, padding=1), Residual(out), Residual(out)]
        channels = out
    return nn.Sequential(*layers, nn.ReLU(inplace=True))


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x)))), each 3x3."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = orthogonal(nn.Conv2d(channels, channels, 3, padding=1))
        self.second = orthogonal(nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu_(self.first(F.relu(x))))
