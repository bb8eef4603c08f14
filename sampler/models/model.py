"""The common body of the default models: encoders and an optional recurrent core."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from sampler.models.config import ModelConfig
from sampler.models.layers import flatten_leading, full_precision
from sampler.models.observations import Encoder, Observations, VectorEncoding, join
from sampler.models.recurrent import Core, reset
from sampler.spaces import flatten, leaves, map_leaves

Outputs = dict[str, Tensor]


class Model(nn.Module):
    """Observations -> encoder -> core -> heads, as the model protocol wants it.

    inputs: what `obs` holds: the observation itself for ("obs",), else a dict of these names.
    state_shape: states are [n, *state_shape] float32; without a core [n, 0].
    Subclasses add the heads.
    """

    inputs: tuple[str, ...] = ("obs",)

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: ModelConfig,
        q_network: bool = False,
    ) -> None:
        super().__init__()
        self.observations = Observations(observation_space, config)
        self.config = config = config.resolved(bool(self.observations.images), q_network)
        self.encoder = Encoder(self.observations, config)
        self.value_encoder = Encoder(self.observations, config) if config.separate_value else None
        self.previous = PreviousStep(action_space) if config.previous_inputs else None
        self.features = self.encoder.size
        self.state_shape: tuple[int, ...] = (0,)
        self.core: Core | None = None
        if self.previous is not None:
            self.inputs = ("obs", "previous_actions", "previous_rewards")
            self.features += self.previous.size
        if config.core is not None:
            assert config.core_size is not None
            self.core = Core(config.core, self.features, config.core_size)
            self.features = self.core.size
            self.state_shape = self.core.state_shape

    def initial_state(self, n: int) -> Tensor:
        """Zeros [n, *state_shape], on the model's device."""
        return torch.zeros(n, *self.state_shape, device=next(self.parameters()).device)

    def step(self, obs: Any, state: Tensor, is_first: Tensor) -> tuple[Outputs, Tensor]:
        """obs leaves [n, ...], state [n, *state_shape], is_first [n] bool -> (outputs, state)."""
        features, value_features = self._encode(obs, is_first)
        with full_precision(features.device):
            if self.core is not None:
                features, state = self.core.step(features, state, is_first)
            return self.heads(features, value_features), state

    def unroll(self, obs: Any, state: Tensor, is_first: Tensor) -> tuple[Outputs, Tensor]:
        """obs leaves [B, T, ...], state [B, *state_shape], is_first [B, T] -> (outputs, state)."""
        shape = is_first.shape
        flat = map_leaves(lambda leaf: flatten_leading(leaf, 2), obs)
        features, value_features = self._encode(flat, is_first.flatten())
        with full_precision(features.device):
            if self.core is not None:
                features, state = self.core.unroll(features.unflatten(0, shape), state, is_first)
                features = features.flatten(0, 1)
            outputs = self.heads(features, value_features)
        return {name: output.unflatten(0, shape) for name, output in outputs.items()}, state

    def heads(self, features: Tensor, value_features: Tensor | None) -> Outputs:
        """features [N, self.features] -> outputs [N, ...].

        value_features: of the value's own encoder, if it has one.
        """
        raise NotImplementedError

    def set_inference_precision(self, dtype: torch.dtype) -> None:
        """Convert the image encoders' weights to `dtype`; everything else stays float32."""
        for encoder in (self.encoder, self.value_encoder):
            if encoder is not None:
                encoder.set_precision(dtype)

    def update_normaliser(self, obs: Any, mask: Tensor | None = None) -> None:
        """Add observations to the running statistics, if the model has any.

        obs: as given to `step` or `unroll`. mask [n] or [B, T] bool: which of them count.
        """
        self.observations.update_normaliser(self._observation(obs), mask)

    def _observation(self, obs: Any) -> Any:
        return obs if self.previous is None else obs["obs"]

    def _encode(self, obs: Any, is_first: Tensor) -> tuple[Tensor, Tensor | None]:
        images, vector = self.observations(self._observation(obs))
        features, value_features = self.encoder(images, vector), None
        if self.value_encoder is not None:
            value_features = self.value_encoder(images, vector)
        if self.previous is not None:
            previous = self.previous(obs["previous_actions"], obs["previous_rewards"], is_first)
            features = torch.cat((features, previous), dim=-1)
        return features, value_features


class PreviousStep(nn.Module):
    """The previous action (one-hot where it is a choice) and reward, as inputs of a core.

    The reward r is squashed to sign(r) log(1 + |r|), so that large game scores do not saturate
    the gates. Both are zero at an episode's first step.
    """

    def __init__(self, action_space: gym.Space) -> None:
        super().__init__()
        self.space = action_space
        encodings = [VectorEncoding(leaf) for leaf in leaves(action_space, "actions")]
        self.size = sum(encoding.size for encoding in encodings) + 1
        self.encodings = nn.ModuleList(encodings)

    def forward(self, actions: Any, rewards: Tensor, is_first: Tensor) -> Tensor:
        """actions: leaves [N, ...], rewards [N], is_first [N] -> [N, size] float32."""
        parts = flatten(self.space, actions)
        vectors = [encode(part) for encode, part in zip(self.encodings, parts, strict=True)]
        rewards = rewards.float()
        vectors.append((rewards.sign() * rewards.abs().log1p())[:, None])
        return reset(join(vectors), is_first)
