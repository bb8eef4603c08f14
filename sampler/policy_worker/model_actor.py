"""Actions from a model: inference for requests, and the recurrent states that rows begin with."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from sampler.models import load_weights
from sampler.models.device import pin
from sampler.models.inference import Inference
from sampler.policy_worker.requests import RequestBook, Requests
from sampler.shm.parameters import ParameterBlock
from sampler.shm.shared import Shared
from sampler.shm.weights import WeightStore
from sampler.spaces import flatten


class ModelActor:
    """Answers requests with what `Inference` chooses, and keeps the states that rows begin with."""

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
        """`observation_space`: as the model sees it; `seed`: for sampling actions."""
        self.shared = shared
        self.spec = spec = shared.spec
        self.block = ParameterBlock(model)
        # This process's own copy of the weights, in the same kind of memory: the CPU's or the
        # GPU's.
        self.weights = weights
        published = weights.copies[0]
        on_host = isinstance(published, np.ndarray)
        self._received = np.zeros_like(published) if on_host else torch.zeros_like(published)
        self._received_tensors = self.block.views(self._received)
        book = RequestBook(shared, policy)
        self._lanes = book.lanes
        self.inference = Inference(
            model,
            observation_space,
            action_space,
            len(self._lanes),
            device,
            precision,
            seed,
            observation_fields=spec.observation_fields,
        )
        # The model's own outputs first: where they are NaN, so are the log-probabilities.
        self._outputs = sorted(spec.outputs, key=lambda name: name == "log_probs")
        self.inputs = [*self.inference.observation_fields, "age"]
        if spec.action_mask_size:
            self.inputs.append("action_mask")
        if spec.previous:
            self.inputs += [f"previous_{a.name}" for a in spec.actions] + ["previous_rewards"]
        self._lanes_per_group = shared.topology.lanes_per_group
        if spec.has_state:
            # Rows begin every `stride` steps of a lane; where rows overlap, the state that a row
            # begins with comes up while an earlier row is filled, and is kept until then.
            self._stride = spec.steps - spec.overlap
            kept = -(-spec.overlap // self._stride) + 1
            self._known = np.zeros(len(book.groups), bool)
            self._beginnings = torch.zeros((kept, *self.inference.state.shape), device=device)

    def prepare(self, buffers: list[np.ndarray]) -> None:
        if self.inference.device.type == "cuda":
            for buffer in buffers:
                pin(buffer)

    def load(self, version: int) -> int:
        loaded = self.weights.read(self._received)
        load_weights(self.inference.model, self._received_tensors)
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
        epsilon = None
        if "q_values" in self.spec.outputs:
            epsilon = self.shared.epsilon[self._lanes[requests.lanes]]
        is_first = inputs["age"] == 0
        choice = self.inference.act(requests.lanes, inputs, is_first, epsilon)
        fields = {name: choice.outputs[name] for name in self._outputs if name != "log_probs"}
        fields["log_probs"] = choice.log_probs
        stored = {name: tensor.cpu().numpy() for name, tensor in fields.items()}
        self.inference.refuse_nan(
            stored,
            inputs,
            lambda row: f"lane {self._lanes[requests.lanes[row]]}",
            lambda: (
                f" (weights of version {self.weights.version}); publish finite weights, "
                "and check the model's range"
            ),
        )
        parts = flatten(self.inference.action_space, choice.actions)
        for leaf, part in zip(self.spec.actions, parts, strict=True):
            stored[leaf.name] = part.cpu().numpy()
        beginnings = None
        if self.spec.has_state:
            beginnings = self._beginning_states(requests, choice.state)
        return stored, beginnings

    # ---- saving and restoring

    def state_dict(self) -> dict[str, Any]:
        state = self.inference.state_dict()
        if self.spec.has_state:
            state |= {"known": self._known, "beginnings": self._beginnings}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inference.load_state_dict(state)
        if self.spec.has_state:
            self._known = state["known"]
            self._beginnings.copy_(torch.from_numpy(state["beginnings"]))

    # ---- recurrent state

    def _beginning_states(
        self, requests: Requests, state: Tensor
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Keep the states that rows will begin with; return those of the rows that begin here."""
        lanes, to_device = self.inference.to_device(requests.lanes), self.inference.to_device
        since = requests.rows * self._stride + requests.steps
        meets = np.flatnonzero(self._per_lane(since % self._stride == 0))
        if len(meets):
            slots = self._per_lane(since // self._stride % len(self._beginnings))[meets]
            self._beginnings[to_device(slots), lanes[meets]] = state[meets]
        first_step = np.where(requests.rows == 0, 0, self.spec.overlap)
        begins = np.flatnonzero(self._per_lane(requests.steps == first_step))
        if not len(begins):
            return None
        slots = self._per_lane(requests.rows % len(self._beginnings))[begins]
        states = self._beginnings[to_device(slots), lanes[begins]]
        return begins, states.cpu().numpy()

    def _per_lane(self, per_request: np.ndarray) -> np.ndarray:
        return np.repeat(per_request, self._lanes_per_group)
