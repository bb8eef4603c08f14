"""R2D2: recurrent Q-learning from replayed sequences (Kapturowski et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sampler.batch import SequenceBatch
from sampler.checks import check_choice, check_flags, check_numbers
from sampler.errors import ConfigError
from sampler.learner.algorithms.initial_states import InitialStates
from sampler.learner.algorithms.q_learner import SMALLER_REPLAY, QLearner
from sampler.learner.algorithms.q_learner_config import QLearnerConfig
from sampler.learner.algorithms.state_drift import RowLinks, delta_q
from sampler.learner.functional.losses import reduce
from sampler.learner.functional.targets import (
    IDENTITY,
    RESCALE,
    double_q_values,
    transformed_n_step,
)
from sampler.learner.replay.row_storage import Fields
from sampler.learner.replay.sequence_replay import (
    SequenceReplay,
    capacity_in_rows,
    row_fields,
    sequence_priority,
)
from sampler.shm.store import StoreSpec
from sampler.spaces import map_leaves

DRIFT_EVERY = 100  # updates between two measurements of the state's drift
DRIFT_ROWS = 16  # rows in a measurement


@dataclass(frozen=True)
class R2D2Config(QLearnerConfig):
    """Settings of R2D2; the defaults are the paper's, except the size of the replay."""

    learning_rate: float = 1e-4
    epsilon: float = 1e-3
    max_grad_norm: float = 80.0
    gamma: float = 0.997
    n_step: int = 5
    alpha: float = 0.9
    beta: float = 0.6
    burn_in: int = 40
    """Steps at the start of a sequence that only bring the recurrent state up to date."""
    sequence: int = 80
    """Steps of a sequence after the burn-in: those that are learned."""
    shift: int = 40
    """Steps between the starts of a lane's successive sequences, at most `sequence`."""
    init_state: Literal["stored", "zero", "learned"] = "stored"
    """State that a sequence begins with: the actor's own, zeros, or what a small network makes of
    the first observation."""
    eta: float = 0.9
    """Weight of the largest error of a sequence in its priority; the mean has the rest."""
    value_rescaling: bool = True
    """Learn h(Q), h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000, in place of clipping rewards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "burn_in", whole=True, least=0)
        check_numbers(self, "sequence", whole=True, least=2)
        check_numbers(self, "shift", whole=True, least=1)
        check_numbers(self, "eta", least=0, most=1)
        check_flags(self, "value_rescaling")
        check_choice(self, "init_state", ("stored", "zero", "learned"))
        if self.shift > self.sequence:
            raise ConfigError(
                f"shift={self.shift} exceeds sequence={self.sequence}: the steps in between would "
                "never be learned"
            )

    @property
    def rollout(self) -> int:
        """`SamplerConfig.rollout` that these sequences need: steps in a row."""
        return self.burn_in + self.sequence

    @property
    def overlap(self) -> int:
        """`SamplerConfig.overlap` that these sequences need."""
        return self.rollout - self.shift

    def rows(self, rollout: int, overlap: int) -> dict[str, int]:
        return {"rollout": self.rollout, "overlap": self.overlap}


class R2D2(QLearner):
    """Learns from the steps after the burn-in of replayed rows; also works without a recurrent
    core."""

    config: R2D2Config
    replay: SequenceReplay | None

    def __init__(
        self,
        model: nn.Module,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: R2D2Config,
        device: str = "auto",
        precision: str = "auto",
    ) -> None:
        super().__init__(model, observation_space, action_space, config, device, precision)
        self.transform = RESCALE if config.value_rescaling else IDENTITY
        self.initial_states = InitialStates(
            config.init_state,
            self.model,
            observation_space,
            self.device,
            config.learning_rate,
            config.max_non_finite,
        )
        self.links: RowLinks | None = None
        self._saved_links: Fields = {}
        self._spec: StoreSpec | None = None

    @property
    def stored_steps(self) -> int:
        return 0 if self.replay is None else len(self.replay) * self.config.shift

    @property
    def steps_per_update(self) -> int:
        return self.config.batch_size * self.config.sequence

    # ---- into the replay

    def make_replay(self, batch: SequenceBatch) -> SequenceReplay:
        config, self._spec = self.config, batch.spec
        dropped = {"episode_id", *batch.spec.outputs}
        fields = {n: spec for n, spec in row_fields(batch.fields).items() if n not in dropped}
        capacity = capacity_in_rows(config.replay_capacity, config.rollout, config.overlap)
        replay = SequenceReplay(
            fields,
            capacity,
            config.alpha,
            config.beta,
            path=config.replay_path,
            remedy=SMALLER_REPLAY,
            max_bytes=config.replay_bytes,
        )
        if config.overlap and batch.spec.has_state:
            self.links = RowLinks(replay.storage.capacity, config.shift)
        return replay

    def open_replay(self, batch: SequenceBatch) -> None:
        super().open_replay(batch)
        if self.links is not None and self._saved_links:
            self.links.load_state_dict(self._saved_links)

    def insert(self, batch: SequenceBatch) -> None:
        assert self.replay is not None
        priorities = self.actor_priorities(batch) if self.config.prioritised else None
        rows = self.replay.add(batch.fields, priorities)
        if self.links is not None:
            kept = slice(len(batch) - len(rows), None)
            self.links.add(rows, batch.lane_id[kept], batch.episode_id[kept], batch.age[kept])

    def actor_priorities(self, batch: SequenceBatch) -> np.ndarray:
        """Priorities [B] of new rows, from the Q-values with which their actions were chosen.

        The actor never evaluated the observation after a row, so windows end one step earlier and
        the last step does not count, except where it terminated its episode.
        """
        data = batch.to("cpu")
        learned = slice(self.config.burn_in, None)
        q_values = data.q_values[:, learned]
        following = torch.cat((q_values[:, 1:], torch.zeros_like(q_values[:, :1])), dim=1)
        exact = data.terminated[:, -1]
        cuts = (data.terminated | data.truncated)[:, learned]
        cuts[:, -2] |= ~exact
        known = data.mask[:, learned].clone()
        known[:, -1] &= exact
        errors = self._errors(data, q_values, following, following, cuts)
        return sequence_priority(errors, known, self.config.eta).numpy()

    # ---- out of the replay

    def learn(self) -> bool:
        assert self.replay is not None
        assert self._spec is not None
        config = self.config
        fields, rows, weights = self.replay.sample(
            config.batch_size, self.generator, out=self._buffers, beta=self.beta
        )
        batch = self.batch_of(self._spec, fields).to(self.device)
        state = self.initial_states(batch)
        online, errors = self.td_errors(batch, state)
        learned = slice(config.burn_in, None)
        valid = batch.mask[:, learned]
        terms = torch.where(valid, self.loss_terms(errors), 0.0).sum(1)
        importance = torch.from_numpy(weights).to(self.device)
        loss = (importance * terms).mean()
        made = self.step(loss, {"q_values": online, "errors": errors})
        if made:
            absolute = errors.detach().abs()
            priorities = sequence_priority(absolute, valid, config.eta)
            if config.prioritised:
                self.replay.update_priorities(rows, priorities.cpu().numpy())
            self.metrics.add(
                {
                    "losses/q_loss": loss,
                    "losses/td_error": reduce(absolute, valid),
                    "losses/q_values": reduce(
                        self.taken(online[:, :-1], batch.actions[:, learned]), valid
                    ),
                    "losses/priority": priorities.mean(),
                    "perf/replay_age": self.replay_age(rows, config.shift),
                }
            )
        if (error := self.initial_states.learn(batch)) is not None:
            self.metrics.add({"losses/initial_state": error})
        if self.links is not None and self.updates % DRIFT_EVERY == 0:
            self.metrics.add(self.drift(batch, rows, state))
        return made

    def td_errors(self, batch: SequenceBatch, state: Tensor) -> tuple[Tensor, Tensor]:
        """Online Q-values [B, sequence + 1, A] after the burn-in, and temporal differences
        [B, sequence]; see `q_values`."""
        online, target = self.q_values(batch, state)
        cuts = (batch.terminated | batch.truncated)[:, self.config.burn_in :]
        return online, self._errors(batch, online[:, :-1], target[:, 1:], online[:, 1:], cuts)

    def q_values(self, batch: SequenceBatch, state: Tensor) -> tuple[Tensor, Tensor]:
        """Q-values after the burn-in, online and target, float32 [B, sequence + 1, A].

        batch: tensors. state: [B, *state] before the first step. No gradient flows through the
        burn-in or the target network.
        """
        burn_in = self.config.burn_in
        obs, is_first = batch.model_obs, batch.is_first
        later = map_leaves(lambda leaf: leaf[:, burn_in:], obs)
        later_first = is_first[:, burn_in:]
        states = [state, state]
        with self.autocast(), torch.no_grad():
            if burn_in and state.numel():
                earlier = map_leaves(lambda leaf: leaf[:, :burn_in], obs)
                states = [
                    network.unroll(earlier, state, is_first[:, :burn_in])[1]
                    for network in (self.model, self.target)
                ]
            target = self.target.unroll(later, states[1], later_first)[0]["q_values"].float()
        with self.autocast():
            online = self.model.unroll(later, states[0], later_first)[0]["q_values"].float()
        return online, target

    def _errors(
        self,
        batch: SequenceBatch,
        q_values: Tensor,
        next_target: Tensor,
        next_online: Tensor,
        cuts: Tensor,
    ) -> Tensor:
        """Temporal differences [B, L] of the L steps after the burn-in; only `q_values` has a
        gradient.

        q_values: [B, L, A] before each step; next_target, next_online: after it. cuts: bool [B, L],
        where windows end: at the ends of episodes, and before unknown values.
        """
        learned = slice(self.config.burn_in, None)
        rewards = torch.where(batch.mask, batch.rewards, 0.0)[:, learned]
        mask = (
            None if batch.action_mask is None else batch.action_mask[:, self.config.burn_in + 1 :]
        )
        next_values = double_q_values(next_target, self.selector(next_online, next_target, mask))
        targets = transformed_n_step(
            self.config.gamma * ~batch.terminated[:, learned],
            self.rewards(rewards),
            next_values,
            cuts,
            self.config.n_step,
            self.transform,
        )
        return targets - self.taken(q_values, batch.actions[:, learned])

    def drift(self, batch: SequenceBatch, rows: np.ndarray, state: Tensor) -> dict[str, Tensor]:
        """How far stored states are from recomputed ones (`delta_q`), as metrics, for rows whose
        lane's next row is also stored.

        batch: replayed rows, tensors; rows: their serial numbers [n]; state: [n, *state] before
        their first step.
        """
        assert self.replay is not None
        assert self.links is not None
        following = self.links.following(rows)
        storage = self.replay.storage
        chosen = np.flatnonzero(storage.stored(following))[:DRIFT_ROWS]
        if not len(chosen):
            return {}
        slots = storage.slots(following[chosen])
        stored = torch.from_numpy(storage.arrays["rnn_state"][slots]).to(self.device)
        index = torch.from_numpy(chosen).to(self.device)
        obs = map_leaves(lambda leaf: leaf[index], batch.model_obs)
        first, last = delta_q(
            self.model, obs, batch.is_first[index], state[index], stored, self.links.shift
        )
        drift = {"losses/delta_q_first": first, "losses/delta_q_last": last}
        return {name: value for name, value in drift.items() if not value.isnan()}

    def state_dict(self) -> dict[str, Any]:
        state = {**super().state_dict(), "initial_states": self.initial_states.state_dict()}
        if "replay" in state and self.links is not None:
            state["links"] = {n: torch.from_numpy(a) for n, a in self.links.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.initial_states.load_state_dict(state["initial_states"])
        links = {name: tensor.cpu().numpy() for name, tensor in state.get("links", {}).items()}
        if self.links is None:
            self._saved_links = links
        elif links:
            self.links.load_state_dict(links)
