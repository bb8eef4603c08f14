"""Actions from a model: inference on one device, with the recurrent state of every lane there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from sampler.errors import EnvError, ModelError, StateError
from sampler.models import distribution_for, epsilon_greedy, epsilon_greedy_log_prob, load_weights
from sampler.models.device import pin
from sampler.policy_worker.requests import RequestBook, Requests
from sampler.shm.parameters import ParameterBlock
from sampler.shm.shared import Shared
from sampler.shm.weights import WeightStore
from sampler.spaces import flatten, unflatten


class ModelActor:
    """Runs `model.step`, samples from its distribution, and remembers each lane's state."""

    def __init__(
        self,
        model: Any,
        shared: Shared,
        weights: WeightStore,
        policy: int,
        observation_space: gym.Space,
        action_space: gym.Space,
        device: torch.device,
        precision: torch.dtype,
        seed: int,
    ):
        """`observation_space`: as the model sees it; `seed`: of the action sampling."""
        self.shared = shared
        self.spec = spec = shared.spec
        self.observation_space, self.action_space = observation_space, action_space
        self.device = device
        self.block = ParameterBlock(model)
        # A copy of the block in this process, where the weights are: in memory or on the GPU.
        self.weights = weights
        published = weights.copies[0]
        on_host = isinstance(published, np.ndarray)
        self._received = np.zeros_like(published) if on_host else torch.zeros_like(published)
        self._received_tensors = self.block.views(self._received)
        self.model = model.to(device).eval()
        self._autocast = _lower_precision(self.model, device, precision)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.distribution = distribution_for(model, action_space)
        self.observation_names = spec.observation_fields
        # The model's own outputs first: where they are NaN, so are the log-probabilities.
        self._checked = sorted(spec.outputs, key=lambda name: name == "log_probs")
        self.model_inputs = getattr(model, "inputs", ("obs",))
        self.inputs = [*self.observation_names, "age"]
        if spec.action_mask_size:
            self.inputs.append("action_mask")
        if spec.previous:
            self.inputs += [f"previous_{a.name}" for a in spec.actions] + ["previous_rewards"]
        book = RequestBook(shared, policy)
        self._lanes = book.lanes
        self._lanes_per_group = shared.topology.lanes_per_group
        if spec.has_state:
            # Rows begin every `stride` steps of a lane; where they overlap, the state that a row
            # begins with is met while an earlier row is filled, and kept until then.
            self._stride = spec.steps - spec.overlap
            kept = -(-spec.overlap // self._stride) + 1
            self._known = np.zeros(len(book.groups), bool)
            self._state = model.initial_state(len(book.lanes)).to(device)
            self._beginnings = torch.zeros((kept, *self._state.shape), device=device)

    def prepare(self, buffers: list[np.ndarray]) -> None:
        if self.device.type == "cuda":
            for buffer in buffers:
                pin(buffer)

    def load(self, version: int) -> int:
        loaded = self.weights.read(self._received)
        load_weights(self.model, self._received_tensors)
        return loaded

    def begin(self, requests: Requests) -> None:
        if self.spec.has_state:
            beginning = (requests.rows == 0) & (requests.steps == 0)
            self._known[requests.positions[beginning]] = True

    def knows(self, requests: Requests) -> np.ndarray:
        if not self.spec.has_state:
            return np.ones(len(requests), bool)
        return self._known[requests.positions]

    @torch.inference_mode()
    def act(
        self, requests: Requests, inputs: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, np.ndarray] | None]:
        tensors = {name: self._to_device(array) for name, array in inputs.items()}
        is_first = tensors["age"] == 0
        state, lanes = self._state_before(requests, is_first)
        with self._autocast():
            outputs, new_state = self.model.step(self._model_obs(tensors), state, is_first)
        outputs = {name: tensor.float() for name, tensor in outputs.items()}
        actions, log_probs = self._choose(requests, outputs, tensors.get("action_mask"))
        fields = {
            leaf.name: value
            for leaf, value in zip(
                self.spec.actions, flatten(self.action_space, actions), strict=True
            )
        }
        fields["log_probs"] = log_probs
        fields |= {name: outputs[name] for name in self.spec.outputs if name != "log_probs"}
        beginnings = None
        if lanes is not None:
            beginnings = self._beginning_states(requests, lanes, state)
            self._state[lanes] = new_state
        stored = {name: tensor.cpu().numpy() for name, tensor in fields.items()}
        for name in self._checked:
            if np.isnan(stored[name]).any():
                self._refuse(name, stored[name], requests, inputs)
        return stored, beginnings

    def _refuse(
        self, name: str, output: np.ndarray, requests: Requests, inputs: dict[str, np.ndarray]
    ) -> None:
        """Raise the error for an output [N, ...] that holds NaN, naming its cause."""
        lane = int(np.argwhere(np.isnan(output))[0, 0])
        where = f"lane {self._lanes[requests.lanes[lane]]}"
        for source in self.observation_names:
            if inputs[source].dtype.kind == "f" and not np.isfinite(inputs[source][lane]).all():
                raise EnvError(f"{where}: the environment's {source} is not finite; correct it")
        raise ModelError(
            f"{where}: the model's output {name!r} is NaN (weights of version "
            f"{self.weights.version}); publish finite weights, and check the model's range"
        )

    def _to_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def _model_obs(self, tensors: dict[str, Tensor]) -> Any:
        obs = unflatten(self.observation_space, [tensors[n] for n in self.observation_names])
        if self.model_inputs == ("obs",):
            return obs
        previous = [tensors[f"previous_{leaf.name}"] for leaf in self.spec.actions]
        available = {
            "obs": obs,
            "previous_actions": unflatten(self.action_space, previous),
            "previous_rewards": tensors["previous_rewards"],
        }
        return {name: available[name] for name in self.model_inputs}

    def _choose(
        self, requests: Requests, outputs: dict[str, Tensor], mask: Tensor | None
    ) -> tuple[Any, Tensor]:
        if "q_values" in outputs:
            q_values = outputs["q_values"]
            epsilon = self._to_device(self.shared.epsilon[self._lanes[requests.lanes]])
            actions = epsilon_greedy(q_values, epsilon, self.generator, mask)
            log_probs = epsilon_greedy_log_prob(q_values, epsilon, actions, mask)
            return actions + int(self.action_space.start), log_probs  # type: ignore[attr-defined]
        distribution = self.distribution(outputs["logits"], mask)
        return distribution.sample_with_log_prob(self.generator)

    # ---- saving and restoring

    def state_dict(self) -> dict[str, Any]:
        state = {"device": self.device.type, "generator": self.generator.get_state()}
        if self.spec.has_state:
            state |= {"known": self._known, "state": self._state, "beginnings": self._beginnings}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["device"] != self.device.type:
            raise StateError(f"device={self.device.type} was {state['device']}")
        self.generator.set_state(torch.from_numpy(state["generator"]))
        if self.spec.has_state:
            self._known = state["known"]
            self._state.copy_(torch.from_numpy(state["state"]))
            self._beginnings.copy_(torch.from_numpy(state["beginnings"]))

    # ---- recurrent state

    def _state_before(self, requests: Requests, is_first: Tensor) -> tuple[Tensor, Tensor | None]:
        """State of each lane before this step (zero where an episode begins), and the lanes."""
        count = len(requests.lanes)
        if not self.spec.has_state:
            return torch.zeros((count, 0), device=self.device), None
        lanes = self._to_device(requests.lanes)
        state = self._state[lanes]
        state[is_first] = 0.0
        return state, lanes

    def _beginning_states(
        self, requests: Requests, lanes: Tensor, state: Tensor
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Keep the states that rows will begin with; return those of the rows that begin here."""
        since = requests.rows * self._stride + requests.steps
        meets = np.flatnonzero(self._per_lane(since % self._stride == 0))
        if len(meets):
            slots = self._per_lane(since // self._stride % len(self._beginnings))[meets]
            self._beginnings[self._to_device(slots), lanes[meets]] = state[meets]
        first_step = np.where(requests.rows == 0, 0, self.spec.overlap)
        begins = np.flatnonzero(self._per_lane(requests.steps == first_step))
        if not len(begins):
            return None
        slots = self._per_lane(requests.rows % len(self._beginnings))[begins]
        states = self._beginnings[self._to_device(slots), lanes[begins]]
        return begins, states.cpu().numpy()

    def _per_lane(self, per_request: np.ndarray) -> np.ndarray:
        return np.repeat(per_request, self._lanes_per_group)


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
