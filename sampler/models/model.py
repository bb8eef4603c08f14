"""The common body of the default models: encoders and an optional recurrent core."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from sampler.models.config import ModelConfig
from sampler.models.layers import flatten_leading, full_precision
from sampler.models.observations import Encoder, Observations, VectorEncoding, join
from sampler.models.policy_model import PolicyModel
from sampler.models.recurrent import Core, reset
from sampler.spaces import flatten, leaves, map_leaves

Outputs = dict[str, Tensor]


class Model(PolicyModel):
    """Observations -> body -> heads, by the model protocol; subclasses add the heads.

    state_shape: states are [n, *state_shape] float32; without a core [n, 0]. If the value has a
    core of its own, its state follows the policy's.
    """

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
        self.previous = PreviousStep(action_space) if config.previous_inputs else None
        if self.previous is not None:
            self.inputs = ("obs", "previous_actions", "previous_rewards")
        extra = 0 if self.previous is None else self.previous.size
        self.body = Body(self.observations, extra, config)
        self.value_body = Body(self.observations, extra, config) if config.separate_value else None
        self.state_shape: tuple[int, ...] = (0,)
        if self.body.core is not None:
            parts, size = self.body.core.state_shape
            self.state_shape = (parts if self.value_body is None else 2 * parts, size)

    def initial_state(self, n: int) -> Tensor:
        """Zeros [n, *state_shape], on the model's device."""
        return torch.zeros(n, *self.state_shape, device=next(self.parameters()).device)

    def step(self, obs: Any, state: Tensor, is_first: Tensor) -> tuple[Outputs, Tensor]:
        """obs leaves [n, ...], state [n, *state_shape], is_first [n] bool -> (outputs, state)."""
        features, value_features, state = self._features(obs, state, is_first)
        with full_precision(features.device):
            return self.heads(features, value_features), state

    def unroll(self, obs: Any, state: Tensor, is_first: Tensor) -> tuple[Outputs, Tensor]:
        """obs leaves [B, T, ...], state [B, *state_shape], is_first [B, T] -> (outputs, state)."""
        flat = map_leaves(lambda leaf: flatten_leading(leaf, 2), obs)
        features, value_features, state = self._features(flat, state, is_first)
        with full_precision(features.device):
            outputs = self.heads(features, value_features)
        shape = is_first.shape
        return {name: output.unflatten(0, shape) for name, output in outputs.items()}, state

    def heads(self, features: Tensor, value_features: Tensor) -> Outputs:
        """features [N, body.size], and those for the value (often the same) -> outputs [N, ...]."""
        raise NotImplementedError

    def set_inference_precision(self, dtype: torch.dtype) -> None:
        """Convert the image encoders' weights to `dtype`; everything else stays float32."""
        for body in (self.body, self.value_body):
            if body is not None:
                body.encoder.set_precision(dtype)

    def update_normalizer(self, obs: Any, mask: Tensor | None = None) -> None:
        """Add observations to the running statistics, if the model has any.

        obs: as given to `step` or `unroll`. mask [n] or [B, T] bool: which of them count.
        """
        self.observations.update_normalizer(self._observation(obs), mask)

    def _observation(self, obs: Any) -> Any:
        return obs if self.previous is None else obs["obs"]

    def _features(self, obs: Any, state: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """obs leaves [N, ...] -> (features [N, F], features for the value, new state)."""
        inputs = list(self.observations(self._observation(obs)))
        if self.previous is not None:
            previous = obs["previous_actions"], obs["previous_rewards"]
            inputs.append(self.previous(*previous, is_first.flatten()))
        if self.value_body is None:
            features, state = self.body(state, is_first, *inputs)
            return features, features, state
        own, value = (state, state) if self.body.core is None else state.chunk(2, dim=1)
        features, own = self.body(own, is_first, *inputs)
        value_features, value = self.value_body(value, is_first, *inputs)
        if self.body.core is not None:
            state = torch.cat((own, value), dim=1)
        return features, value_features, state


class Body(nn.Module):
    """An encoder and, if configured, a core: everything below the heads."""

    def __init__(self, observations: Observations, extra: int, config: ModelConfig) -> None:
        """extra: size of the core's inputs besides the encoder's features. config: resolved."""
        super().__init__()
        self.encoder = Encoder(observations, config)
        self.size = self.encoder.size + extra
        self.core: Core | None = None
        if config.core is not None:
            assert config.core_size is not None
            self.core = Core(config.core, self.size, config.core_size)
            self.size = self.core.size

    def forward(
        self,
        state: Tensor,
        is_first: Tensor,
        images: list[Tensor],
        vector: Tensor | None,
        previous: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """A step (is_first [N]) or an unroll (is_first [B, T], N = B T) -> (features, state).

        images, vector and previous have N as their first dimension; so have the features.
        """
        features = self.encoder(images, vector)
        if previous is not None:
            features = torch.cat((features, previous), dim=-1)
        if self.core is None:
            return features, state
        with full_precision(features.device):
            if is_first.dim() == 1:
                return self.core.step(features, state, is_first)
            features = features.unflatten(0, is_first.shape)
            features, state = self.core.unroll(features, state, is_first)
            return features.flatten(0, 1), state


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
