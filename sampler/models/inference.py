"""From observations to actions, for policy workers, rollout workers that choose their own actions,
and evaluation alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from sampler.errors import EnvError, ModelError, StateError
from sampler.models.distributions import distribution_for
from sampler.models.exploration import epsilon_greedy, epsilon_greedy_log_prob
from sampler.spaces import leaves, unflatten
from sampler.spaces.model_inputs import model_inputs


class Choice(NamedTuple):
    """The actions of n lanes and the model outputs they were chosen from, on the model's device."""

    actions: Any
    """[n, ...], nested like the action space."""
    log_probs: Tensor
    """[n] float32."""
    outputs: dict[str, Tensor]
    """The model's outputs, float32 [n, ...]."""
    state: Tensor
    """[n, *state] float32: recurrent state before the step, zero where an episode begins."""


class Inference:
    """Runs a model step by step for L lanes, whose recurrent states it keeps, and draws actions.

    Observations come as arrays by field name, [n, ...] for n of the lanes: the leaves of the
    observation space (`obs`, `obs.key`), `action_mask` [n, A] where the environment gives one, and,
    where the model asks for them, the leaves of `previous_actions`, and `previous_rewards` [n].
    """

    def __init__(
        self,
        model: Any,
        observation_space: gym.Space,
        action_space: gym.Space,
        lanes: int,
        device: torch.device,
        precision: torch.dtype = torch.float32,
        seed: int = 0,
        greedy: bool = False,
        observation_fields: Sequence[str] | None = None,
    ) -> None:
        """model: of the library's protocol; it is moved to `device` and set to evaluation.

        observation_space: as the model sees it. seed: of the actions drawn. greedy: take the most
        likely actions. observation_fields: names to use in place of those of the space's leaves.
        """
        self.model = model.to(device).eval()
        self.device = device
        self.action_space = action_space
        self.distribution = distribution_for(model, action_space)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.greedy = greedy
        self.state: Tensor = model.initial_state(lanes).to(device)
        """[L, *state] float32: of every lane, after its last step."""
        self.has_state = self.state.numel() > 0
        self.observation_fields = list(
            observation_fields or (leaf.name for leaf in leaves(observation_space, "obs"))
        )
        self._observation_space = observation_space
        self._previous_fields = [leaf.name for leaf in leaves(action_space, "previous_actions")]
        self._inputs = tuple(getattr(model, "inputs", ("obs",)))
        self._autocast = _lower_precision(model, device, precision)

    @torch.inference_mode()
    def act(
        self,
        lanes: np.ndarray,
        fields: Mapping[str, np.ndarray],
        is_first: np.ndarray,
        epsilon: np.ndarray | None = None,
    ) -> Choice:
        """Actions for `lanes`, int [n], from their observations, `fields`.

        is_first: bool [n], where an episode begins. epsilon: float32 [n], for a model with
        Q-values: probability of a random action.
        """
        tensors = {name: self.to_device(array) for name, array in fields.items()}
        first = self.to_device(is_first)
        if self.has_state:
            rows = self.to_device(lanes)
            state = self.state[rows]
            state[first] = 0.0
        else:
            state = torch.zeros((len(lanes), *self.state.shape[1:]), device=self.device)
        with self._autocast():
            outputs, after = self.model.step(self._model_inputs(tensors), state, first)
        outputs = {name: tensor.float() for name, tensor in outputs.items()}
        if self.has_state:
            self.state[rows] = after
        actions, log_probs = self._choose(outputs, tensors.get("action_mask"), epsilon)
        return Choice(actions, log_probs, outputs, state)

    def to_device(self, array: np.ndarray) -> Tensor:
        """The array as a tensor on the model's device; on the CPU it shares the array's memory."""
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def refuse_nan(
        self,
        outputs: Mapping[str, np.ndarray],
        fields: Mapping[str, np.ndarray],
        place: Callable[[int], str],
        remedy: Callable[[], str],
    ) -> None:
        """Raise the error for the first of `outputs` [n, ...] that holds NaN, naming its cause.

        fields: the inputs of `act`. place: names the lane of a row. remedy: what to do if the model
        is the cause (ModelError) and not an observation that is not finite (EnvError).
        """
        for name, output in outputs.items():
            if not np.isnan(output).any():
                continue
            row = int(np.argwhere(np.isnan(output))[0, 0])
            for source in self.observation_fields:
                values = fields[source]
                if values.dtype.kind == "f" and not np.isfinite(values[row]).all():
                    raise EnvError(
                        f"{place(row)}: the environment's {source} is not finite; correct it"
                    )
            raise ModelError(f"{place(row)}: the model's output {name!r} is NaN{remedy()}")

    def state_dict(self) -> dict[str, Any]:
        """Everything that later actions depend on, except the weights."""
        state = {"device": self.device.type, "generator": self.generator.get_state()}
        return state | {"state": self.state} if self.has_state else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict()`. Raises StateError for a state of another kind of
        device."""
        if state["device"] != self.device.type:
            raise StateError(f"device={self.device.type} was {state['device']}")
        self.generator.set_state(torch.from_numpy(state["generator"]))
        if self.has_state:
            self.state.copy_(torch.from_numpy(state["state"]))

    def _model_inputs(self, tensors: Mapping[str, Tensor]) -> Any:
        def get(name: str) -> Any:
            if name == "obs":
                parts = [tensors[field] for field in self.observation_fields]
                return unflatten(self._observation_space, parts)
            if name == "previous_actions":
                parts = [tensors[field] for field in self._previous_fields]
                return unflatten(self.action_space, parts)
            return tensors[name]

        return model_inputs(self._inputs, get)

    def _choose(
        self, outputs: Mapping[str, Tensor], mask: Tensor | None, epsilon: np.ndarray | None
    ) -> tuple[Any, Tensor]:
        """(actions, log-probabilities [n])."""
        if "q_values" in outputs:
            assert epsilon is not None
            q_values, random = outputs["q_values"], self.to_device(epsilon)
            index = epsilon_greedy(q_values, random, self.generator, mask)
            log_probs = epsilon_greedy_log_prob(q_values, random, index, mask)
            return index + int(self.action_space.start), log_probs  # type: ignore[attr-defined]
        distribution = self.distribution(outputs["logits"], mask)
        if self.greedy:
            actions = distribution.mode()
            return actions, distribution.log_prob(actions)
        return distribution.sample_with_log_prob(self.generator)


def _lower_precision(
    model: Any, device: torch.device, precision: torch.dtype
) -> Callable[[], AbstractContextManager]:
    """Prepare `model` for inference in `precision`; returns the context to run it in.

    A model that can convert itself (`set_inference_precision`) keeps converted weights, which
    costs less than autocast's conversion at every call.
    """
    if precision == torch.float32:
        return nullcontext
    if hasattr(model, "set_inference_precision"):
        model.set_inference_precision(precision)
        return nullcontext
    return lambda: torch.autocast(device.type, precision)
