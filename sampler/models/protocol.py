"""Custom models: wrapping plain modules, checking what a model returns, loading weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sampler.errors import ConfigError
from sampler.models.distributions import distribution_for
from sampler.models.layers import flatten_leading
from sampler.models.policy_model import PolicyModel
from sampler.spaces import leaves, map_leaves, unflatten
from sampler.spaces.model_inputs import MODEL_INPUTS, model_inputs

RESERVED = frozenset(
    # fields of every step and row
    ("obs", "frames", "actions", "action_mask", "rewards", "terminated", "truncated", "mask", "age")
    + ("is_first", "log_probs", "policy_version", "rnn_state", "lane_id", "episode_id")
    # attributes and methods
    + ("observation_space", "action_space", "spec", "model_obs", "fields", "keys", "items", "get")
    + ("to", "copy", "with_fields", "minibatches", "flatten", "forget", "release")
)
"""Names that no output may have: they are fields and attributes of `SequenceBatch`."""


class PlainPolicyModel(PolicyModel):
    """The model protocol around a module without state: obs [n, ...] -> (logits, values)."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.bounded_actions = getattr(module, "bounded_actions", "clipped")
        self.action_units = getattr(module, "action_units", "environment")

    def initial_state(self, n: int) -> Tensor:
        """[n, 0], since there is no state."""
        return torch.zeros(n, 0, device=device_of(self))

    def step(self, obs: Any, state: Tensor, is_first: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """obs leaves [n, ...] -> ({"logits": [n, P], "values": [n]}, state)."""
        result = self.module(obs)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise ConfigError(
                f"{type(self.module).__name__} returned {describe(result)}; "
                "return (logits, values), or implement initial_state, step and unroll"
            )
        logits, values = self._tensor("logits", result[0]), self._tensor("values", result[1])
        if values.shape == (len(is_first), 1):
            values = values.squeeze(-1)
        return {"logits": logits.float(), "values": values.float()}, state

    def unroll(self, obs: Any, state: Tensor, is_first: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """obs leaves [B, T, ...] -> ({"logits": [B, T, P], "values": [B, T]}, state)."""
        flat = map_leaves(lambda leaf: flatten_leading(leaf, 2), obs)
        outputs, state = self.step(flat, state, is_first.flatten())
        return {k: x.unflatten(0, is_first.shape) for k, x in outputs.items()}, state

    def _tensor(self, name: str, value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            raise ConfigError(
                f"{type(self.module).__name__} returned {describe(value)} as {name}; "
                "return (logits, values) as tensors"
            )
        return value


def as_policy_model(module: nn.Module) -> nn.Module:
    """`module` itself if it follows the model protocol, else wrapped as obs -> (logits, values).

    A plain module gets observations in the space's own dtype (uint8 frames stay uint8) with one
    leading dimension; it returns logits [n, P] and values [n] or [n, 1]. Raises ConfigError for
    anything that is not a module or follows only a part of the protocol.
    """
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"the model is {describe(module)}; make a torch.nn.Module "
            "(obs -> (logits, values), or with initial_state, step and unroll)"
        )
    if hasattr(module, "update_normaliser"):
        raise ConfigError(
            f"{type(module).__name__}.update_normaliser would not be called: rename it to "
            "update_normalizer"
        )
    methods = ("initial_state", "step", "unroll")
    missing = [name for name in methods if not callable(getattr(module, name, None))]
    if len(missing) == len(methods):
        return PlainPolicyModel(module)
    if missing:
        raise ConfigError(
            f"{type(module).__name__} has no {' and no '.join(missing)}; a model needs "
            "initial_state, step and unroll (or none of them: obs -> (logits, values))"
        )
    return module


def model_outputs(
    model: nn.Module, observation_space: gym.Space, action_space: gym.Space
) -> dict[str, tuple[int, ...]]:
    """Shape per step of every output of `model`, found by one step on made-up observations.

    The model must follow the protocol (`as_policy_model`). Raises ConfigError, naming what was
    expected and what came, if an output has the wrong type, dtype or shape, if the logits do not
    fit the action space, or if the state changes its shape.
    """
    n = 3
    name, device = type(model).__name__, device_of(model)
    state = model.initial_state(n)  # type: ignore[operator]
    if not isinstance(state, Tensor) or state.dtype != torch.float32 or len(state) != n:
        raise ConfigError(
            f"{name}.initial_state({n}) returned {describe(state)}; "
            f"return one float32 tensor [{n}, ...] (shape [{n}, 0] for a model without state)"
        )
    obs = dummy_inputs(model, observation_space, action_space, n, device)
    is_first = torch.ones(n, dtype=torch.bool, device=device)
    with evaluation_mode(model), torch.no_grad():
        result = model.step(obs, state.to(device), is_first)  # type: ignore[operator]
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], dict):
        raise ConfigError(f"{name}.step returned {describe(result)}; return (outputs dict, state)")
    outputs, new_state = result
    if not isinstance(new_state, Tensor) or (new_state.shape, new_state.dtype) != (
        state.shape,
        torch.float32,
    ):
        raise ConfigError(
            f"{name}.step returned {describe(new_state)} as its state; "
            f"return float32 {list(state.shape)} as initial_state does"
        )
    return check_outputs(model, outputs, n, action_space)


def check_outputs(
    model: nn.Module, outputs: Mapping[str, Any], n: int, action_space: gym.Space
) -> dict[str, tuple[int, ...]]:
    """Shapes per step of `outputs` for n observations; ConfigError where they are wrong."""
    name = type(model.module if isinstance(model, PlainPolicyModel) else model).__name__
    for key, value in outputs.items():
        if key in RESERVED or not key.isidentifier() or key.startswith(("_", "previous_")):
            raise ConfigError(
                f"{name}: a batch could not hold an output of the name {key!r}, which it uses "
                "itself or cannot have as an attribute; give it another one"
            )
        if not isinstance(value, Tensor) or value.dtype != torch.float32 or value.shape[:1] != (n,):
            raise ConfigError(
                f"{name}: output {key!r} is {describe(value)} for {n} observations; "
                f"expected float32 [{n}, ...]"
            )
    expected: dict[str, tuple[int, ...]] = {}
    if "q_values" in outputs:
        if not isinstance(action_space, spaces.Discrete):
            raise ConfigError(
                f"{name}: Q-values need Discrete actions, not {action_space}; "
                'return "logits" and "values" instead'
            )
        expected["q_values"] = (int(action_space.n),)
    elif "logits" in outputs:
        expected["logits"] = (distribution_for(model, action_space).num_parameters,)
        expected["values"] = ()
    else:
        raise ConfigError(
            f"{name}: outputs {sorted(outputs)} hold no policy; "
            'return "logits" and "values", or "q_values"'
        )
    for key, shape in expected.items():
        if key not in outputs:
            raise ConfigError(f"{name}: there is no output {key!r}; expected {[n, *shape]}")
        if tuple(outputs[key].shape[1:]) != shape:
            raise ConfigError(
                f"{name}: output {key!r} has shape {list(outputs[key].shape)} for {n} "
                f"observations; expected {[n, *shape]} for the action space {action_space}"
            )
    return {key: tuple(value.shape[1:]) for key, value in outputs.items()}


def dummy_inputs(
    model: nn.Module,
    observation_space: gym.Space,
    action_space: gym.Space,
    n: int,
    device: torch.device,
) -> Any:
    """Made-up input for `obs` of `model.step`: the lowest choices, and zeros within bounds."""
    inputs = getattr(model, "inputs", ("obs",))
    unknown = [name for name in inputs if name not in MODEL_INPUTS]
    if unknown or "obs" not in inputs:
        raise ConfigError(
            f"{type(model).__name__}.inputs={inputs!r} must hold 'obs', and of others only "
            f"{', '.join(MODEL_INPUTS[1:])}"
        )
    values = {
        "obs": dummy(observation_space, n, device),
        "previous_actions": dummy(action_space, n, device),
        "previous_rewards": torch.zeros(n, device=device),
    }
    return model_inputs(tuple(inputs), values.__getitem__)


def dummy(space: gym.Space, n: int, device: torch.device) -> Any:
    """n equal elements of a space, as tensors [n, ...]."""
    tensors = []
    for leaf in leaves(space, "space"):
        value: Any = np.zeros(leaf.shape, leaf.dtype)
        if isinstance(leaf.space, spaces.Discrete | spaces.MultiDiscrete):
            value = value + leaf.space.start
        elif isinstance(leaf.space, spaces.Box):
            value = value.clip(leaf.space.low, leaf.space.high)
        array = np.broadcast_to(value, (n, *leaf.shape)).astype(leaf.dtype)
        tensors.append(torch.from_numpy(array).to(device))
    return unflatten(space, tensors)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """`model.eval()` for a block; afterwards each of its parts is in its former mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's parameters (the CPU if it has none)."""
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def describe(value: Any) -> str:
    """A value's type, shape and dtype, for messages."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
