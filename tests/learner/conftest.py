"""Synthetic batches: random sequences in the store's form, acted on by a given model."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from sampler.batch import SequenceBatch
from sampler.models.distributions import make_distribution
from sampler.shm.store import ArraySpec, StoreSpec
from sampler.spaces import flatten, leaves

OBSERVATIONS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)


class TinyModel(nn.Module):
    """A linear policy and value; with `units`, on top of a decaying trace as recurrent state."""

    inputs = ("obs",)

    def __init__(self, parameters: int, units: int = 0, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.units = units
        self.features = nn.Linear(3, units or 3)
        self.policy = nn.Linear(units or 3, parameters)
        self.value = nn.Linear(units or 3, 1)

    def initial_state(self, n: int) -> torch.Tensor:
        return torch.zeros(n, self.units)

    def unroll(self, obs, state, is_first):
        x = torch.tanh(self.features(obs))
        if self.units:
            rows = []
            for t in range(x.shape[1]):
                state = torch.where(is_first[:, t, None], 0.0, state)
                state = torch.tanh(0.8 * state + x[:, t])
                rows.append(state)
            x = torch.stack(rows, 1)
        return {"logits": self.policy(x), "values": self.value(x).squeeze(-1)}, state


@pytest.fixture
def tiny_model():
    """tiny_model(action_space, units=0, seed=0): a model for that space."""

    def build(action_space: gym.Space, units: int = 0, seed: int = 0) -> TinyModel:
        return TinyModel(make_distribution(action_space).num_parameters, units, seed)

    return build


@pytest.fixture
def batch_from():
    """batch_from(fields, action_space, observation_space, mask_size): arrays as a SequenceBatch."""

    def build(
        fields: dict[str, np.ndarray],
        action_space: gym.Space,
        observation_space: gym.Space = OBSERVATIONS,
    ) -> SequenceBatch:
        def specs(space: gym.Space, name: str) -> tuple[ArraySpec, ...]:
            return tuple(ArraySpec(x.name, x.shape, x.dtype) for x in leaves(space, name))

        rows, steps = fields["rewards"].shape
        mask = fields.get("action_mask")
        spec = StoreSpec(
            buffers=1,
            rows=rows,
            steps=steps,
            overlap=0,
            rows_per_token=1,
            observations=specs(observation_space, "obs"),
            actions=specs(action_space, "actions"),
            action_mask_size=0 if mask is None else mask.shape[-1],
            state_shape=fields["rnn_state"].shape[1:] if "rnn_state" in fields else (0,),
        )
        return SequenceBatch(fields, spec, observation_space, action_space)

    return build


@pytest.fixture
def random_fields():
    """random_fields(model, action_space, rows, steps, seed): the arrays of a batch that `model`
    acted in, at version 3, with terminated and truncated episodes inside the rows."""

    def build(
        model: TinyModel,
        action_space: gym.Space,
        rows: int = 4,
        steps: int = 8,
        seed: int = 0,
        masked: bool = False,
    ) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        fields: dict[str, Any] = {
            "obs": rng.uniform(-1, 1, (rows, steps + 1, 3)).astype(np.float32),
            "age": np.zeros((rows, steps + 1), np.int32),
            "rewards": rng.normal(size=(rows, steps)).astype(np.float32),
            "terminated": np.zeros((rows, steps), bool),
            "truncated": np.zeros((rows, steps), bool),
            "mask": np.ones((rows, steps), bool),
            "policy_version": np.full((rows, steps), 3, np.int64),
            "episode_id": np.zeros((rows, steps), np.int64),
            "lane_id": np.arange(rows),
        }
        for row in range(rows):
            age = int(rng.integers(0, 3))
            ended = False
            for t in range(steps):
                fields["age"][row, t] = age
                fields["episode_id"][row, t] = (fields["age"][row, : t + 1] == 0).sum()
                if ended:
                    fields["mask"][row, t] = False
                    fields["rewards"][row, t] = 0
                    age, ended = 0, False
                else:
                    kind = rng.choice(["go", "terminated", "truncated"], p=[0.7, 0.15, 0.15])
                    ended = kind != "go"
                    if ended:
                        fields[kind][row, t] = True
                    age += 1
            fields["age"][row, steps] = age
        if model.units:
            fields["rnn_state"] = rng.uniform(-1, 1, (rows, model.units)).astype(np.float32)
        if masked:
            size = make_distribution(action_space).num_parameters
            fields["action_mask"] = rng.uniform(size=(rows, steps + 1, size)) < 0.7
            fields["action_mask"][..., 0] = True
        act(model, action_space, fields, seed)
        return fields

    return build


def act(model: TinyModel, action_space: gym.Space, fields: dict[str, Any], seed: int) -> None:
    """Fill in actions, log_probs and values as `model` gives them."""
    steps = fields["rewards"].shape[1]
    state = torch.as_tensor(fields.get("rnn_state", np.zeros((len(fields["obs"]), 0), np.float32)))
    with torch.no_grad():
        outputs, _ = model.unroll(
            torch.as_tensor(fields["obs"]), state, torch.as_tensor(fields["age"] == 0)
        )
    mask = fields.get("action_mask")
    distribution = make_distribution(action_space)(
        outputs["logits"][:, :steps], None if mask is None else torch.as_tensor(mask[:, :steps])
    )
    actions = distribution.sample(torch.Generator().manual_seed(seed))
    for leaf, value in zip(
        leaves(action_space, "actions"), flatten(action_space, actions), strict=True
    ):
        fields[leaf.name] = value.numpy().astype(leaf.dtype)
    fields["log_probs"] = distribution.log_prob(actions).numpy()
    fields["values"] = outputs["values"][:, :steps].numpy()
