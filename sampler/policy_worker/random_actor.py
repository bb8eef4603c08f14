"""Uniform random actions, without a model and without torch."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from gymnasium import spaces

from sampler.policy_worker.requests import Requests
from sampler.shm.shared import Shared
from sampler.shm.weights import WeightStore
from sampler.spaces import Leaf, leaves
from sampler.spaces.masks import mask_size


class RandomActor:
    """Draws every action from its space, with its exact log-probability (density for a Box)."""

    def __init__(
        self,
        shared: Shared,
        weights: WeightStore,
        action_space: spaces.Space,
        seed: np.random.SeedSequence,
    ):
        self.leaves = leaves(action_space, "actions")
        self.mask_sizes = [mask_size(leaf.space) for leaf in self.leaves]
        self.rng = np.random.default_rng(seed)
        self.weights = weights
        self.masked = shared.spec.action_mask_size > 0
        self.inputs = ["action_mask"] if self.masked else []

    def prepare(self, buffers: list[np.ndarray]) -> None:
        """Nothing to prepare: nothing is copied to a device."""

    def load(self, version: int) -> int:
        return self.weights.version

    def begin(self, requests: Requests) -> None:
        """Nothing to do, since lanes have no state."""

    def knows(self, requests: Requests) -> np.ndarray:
        return np.ones(len(requests), bool)

    def act(
        self, requests: Requests, inputs: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], None]:
        count = len(requests.lanes)
        outputs: dict[str, np.ndarray] = {}
        log_probs = np.zeros(count, np.float32)
        allowed = inputs.get("action_mask")
        masked = 0  # entries of the mask used so far
        for leaf, size in zip(self.leaves, self.mask_sizes, strict=True):
            if allowed is None or size == 0:
                drawn = self._draw(leaf, count)
            else:
                drawn = self._draw_masked(leaf, allowed[:, masked : masked + size])
                masked += size
            outputs[leaf.name] = drawn[0]
            log_probs += drawn[1]
        outputs["log_probs"] = log_probs
        return outputs, None

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]

    def _draw_masked(self, leaf: Leaf, allowed: np.ndarray) -> tuple[np.ndarray, Any]:
        """Uniform among the choices that the mask [N, entries] allows."""
        space, count = leaf.space, len(allowed)
        if isinstance(space, spaces.MultiBinary):
            allowed = allowed.reshape((count, *leaf.shape))
            drawn = self.rng.integers(2, size=allowed.shape) * allowed
            return drawn, -log(2) * allowed.reshape(count, -1).sum(axis=1)
        sizes = [int(space.n)] if isinstance(space, spaces.Discrete) else space.nvec.ravel()  # type: ignore[attr-defined]
        choices = np.split(allowed, np.cumsum(sizes)[:-1], axis=1)
        drawn = np.stack([np.argmax(self.rng.random(c.shape) * c, axis=1) for c in choices], axis=1)
        log_probs = -sum(np.log(choice.sum(axis=1)) for choice in choices)
        return drawn.reshape((count, *leaf.shape)) + space.start, log_probs  # type: ignore[attr-defined]

    def _draw(self, leaf: Leaf, count: int) -> tuple[np.ndarray, Any]:
        space, shape = leaf.space, (count,) + leaf.shape
        if isinstance(space, spaces.Discrete):
            return self.rng.integers(space.n, size=shape) + space.start, -log(space.n)
        if isinstance(space, spaces.MultiDiscrete):
            drawn = self.rng.integers(space.nvec, size=shape) + space.start
            return drawn, -float(np.log(space.nvec).sum())
        if isinstance(space, spaces.MultiBinary):
            return self.rng.integers(2, size=shape), -log(2) * int(np.prod(leaf.shape))
        assert isinstance(space, spaces.Box)
        return self._draw_box(space, shape)

    def _draw_box(self, space: spaces.Box, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Uniform between two bounds, exponential from one, standard normal without any."""
        below, above = space.bounded_below, space.bounded_above
        low = np.where(below, space.low, 0.0).astype(np.float64)
        high = np.where(above, space.high, 1.0).astype(np.float64)
        uniform = self.rng.random(shape)
        exponential = self.rng.exponential(size=shape)
        normal = self.rng.standard_normal(shape)
        both, none = below & above, ~(below | above)
        width = np.where(both, high - low, 1.0)
        if space.dtype is not None and space.dtype.kind in "iu":
            width = np.where(both, width + 1, 1.0)
            uniform = np.floor(uniform * width) / width
        one_sided = np.where(below, low + exponential, high - exponential)
        drawn = np.where(both, low + uniform * width, np.where(none, normal, one_sided))
        density = np.where(
            both,
            -np.log(width),
            np.where(none, -0.5 * (normal**2 + log(2 * np.pi)), -exponential),
        )
        return drawn, density.reshape(shape[0], -1).sum(axis=1)
