"""What the learners of Q-values share: replay and its ratio, target network, exploration, state.

An update takes the sampler's batch into the replay and then makes as many optimiser steps as the
replay ratio allows, each on a sample of its own.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sampler.batch import SequenceBatch
from sampler.errors import ConfigError
from sampler.learner.algorithms.q_learner_config import QLearnerConfig
from sampler.learner.base import Explores, Learner, Publish, Replays
from sampler.learner.functional.losses import huber
from sampler.learner.functional.normalize import RewardScaler
from sampler.learner.functional.schedules import LinearSchedule
from sampler.learner.metrics import lag_metrics
from sampler.learner.replay.ratio import ReplayRatio
from sampler.learner.replay.row_storage import Fields
from sampler.learner.replay.sequence_replay import SequenceReplay
from sampler.learner.replay.transition_replay import TransitionReplay
from sampler.models import renamed
from sampler.shm.store import StoreSpec

if TYPE_CHECKING:
    from sampler.config import SamplerConfig
    from sampler.sampler import Sampler

AnyReplay = SequenceReplay | TransitionReplay

SMALLER_REPLAY = "lower replay_capacity, or set replay_path to a directory to keep it on disk"


class QLearner(Learner, Explores, Replays):
    """A learner whose model gives Q-values; subclasses define what is replayed and how it is
    learned.

    The replay is made by `prepare`, or else from the shapes of the first batch.
    """

    config: QLearnerConfig
    beta: float
    """Present exponent of the importance weights."""

    def __init__(
        self,
        model: nn.Module,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: QLearnerConfig,
        device: str = "auto",
        precision: str = "auto",
    ) -> None:
        if not isinstance(action_space, gym.spaces.Discrete):
            raise ConfigError(
                f"{type(self).__name__} needs Discrete actions, not {action_space}; "
                "use a policy algorithm"
            )
        super().__init__(model, observation_space, action_space, config, device, precision)
        self.target: Any = copy.deepcopy(self.model).requires_grad_(False)
        self.first_action = int(action_space.start)
        self.ratio = ReplayRatio(config.replay_ratio)
        self.reward_scaler = RewardScaler(config.gamma) if config.normalize_rewards else None
        self.generator = np.random.default_rng(config.seed)
        """Chooses what is replayed."""
        self.replay: AnyReplay | None = None
        self._buffers: Fields = {}
        self._saved_replay: Fields = {}

    # ---- what subclasses define

    @abstractmethod
    def make_replay(self, batch: SequenceBatch) -> AnyReplay:
        """A replay for rows like those of `batch`. Raises ConfigError where it does not fit."""

    @abstractmethod
    def insert(self, batch: SequenceBatch) -> None:
        """Take the rows of `batch` (numpy, each with a real step) into the replay."""

    @abstractmethod
    def learn(self) -> bool:
        """One optimiser step on a sample of the replay; returns whether it was made."""

    @property
    @abstractmethod
    def stored_steps(self) -> int:
        """Agent steps in the replay."""

    @property
    @abstractmethod
    def steps_per_update(self) -> int:
        """Agent steps that an update learns from."""

    # ---- the loop

    def prepare(self, sampler: Sampler) -> None:
        if self.replay is None:
            self.open_replay(sampler.empty_batch())

    @property
    def saved_replay_bytes(self) -> int:
        return self.replay.nbytes if self.config.save_replay and self.replay is not None else 0

    def set_progress(self, steps: int, total_steps: int | None) -> None:
        super().set_progress(steps, total_steps)
        config = self.config
        self.beta = config.beta
        if config.beta_end is not None and total_steps:
            self.beta = LinearSchedule(config.beta, config.beta_end, total_steps)(steps)

    def update(self, batch: SequenceBatch, publish: Publish) -> dict[str, float]:
        config = self.config
        lags = self._lags(batch)
        new_steps = int(batch.mask[:, batch.spec.overlap :].sum())
        self.store(batch)
        if self.stored_steps >= config.learning_starts or self._full:
            self.ratio.sampled += new_steps
        due = self.ratio.due(self.steps_per_update)
        for number in range(1, due + 1):
            if self.learn() and self.updates % config.target_every == 0:
                self.target.load_state_dict(self.model.state_dict())
            self.ratio.learned += self.steps_per_update
            if number % config.publish_every == 0 or number == due:
                self.publish(publish)
        self.batches += 1
        return {
            **self.metrics.means(),
            **lags,
            "charts/learning_rate": self.learning_rate,
            "perf/replay_ratio": self.ratio.value,
            "perf/replay_steps": float(self.stored_steps),
            "perf/skipped_updates": float(self.guard.skipped),
        }

    def store(self, batch: SequenceBatch) -> None:
        """Insert the rows of `batch` that were not given up into the replay, and update the
        statistics of rewards and observations with them."""
        if self.replay is None:
            self.open_replay(batch)
        rows = self._real_rows(batch)
        if len(rows):
            self._update_normalizer(rows)
            self._count_rewards(rows)
            self.insert(rows)

    def exploration(self, lanes: int, steps: int) -> np.ndarray:
        return self.config.epsilons(lanes, steps)

    def check_sampler(self, config: SamplerConfig) -> None:
        super().check_sampler(config)
        self._check_rows(config.rollout, config.overlap)

    def _check_rows(self, rollout: int, overlap: int) -> None:
        """Raise ConfigError unless the sampler's rows have the length and overlap that this learner
        replays."""
        given = {"rollout": rollout, "overlap": overlap}
        for name, wanted in self.config.rows(rollout, overlap).items():
            if given[name] != wanted:
                raise ConfigError(
                    f"{name}={given[name]} does not suit {type(self).__name__}; "
                    f"its settings need {name}={wanted}"
                )

    @property
    def _full(self) -> bool:
        """Whether the replay is full. It then holds fewer transitions than steps, because the step
        after an episode's end starts none."""
        return self.replay is not None and self.replay.storage.full

    def open_replay(self, batch: SequenceBatch) -> None:
        """Make the replay, for rows like those of `batch`, and fill it from the saved state if
        there is one.

        Raises ConfigError where it does not fit.
        """
        self._check_rows(batch.spec.steps, batch.spec.overlap)
        self.replay = self.make_replay(batch)
        self._buffers = self.replay.buffers(self.config.batch_size)
        if self.device.type == "cuda":  # transfers from pinned memory are asynchronous
            self._buffers = {
                name: torch.from_numpy(array).pin_memory().numpy()
                for name, array in self._buffers.items()
            }
        if self._saved_replay:
            self.replay.load_state_dict(self._saved_replay)
            self._saved_replay = {}

    def _real_rows(self, batch: SequenceBatch) -> SequenceBatch:
        """`batch` without rows that were given up, which may hold anything."""
        kept = batch.mask.any(1)
        if kept.all():
            return batch
        rows = {name: array[kept] for name, array in batch.fields.items()}
        return self.batch_of(batch.spec, rows)

    def _lags(self, batch: SequenceBatch) -> dict[str, float]:
        """Figures about the lag of the sampler's batch."""
        versions, real = batch.policy_version, batch.mask
        self.version = max(self.version, int(versions[real].max(initial=0)))
        return lag_metrics(self.version - versions, real, real)

    def _update_normalizer(self, batch: SequenceBatch) -> None:
        """Update the model's running statistics (in buffers) with the new observations."""
        update = getattr(self.model, "update_normalizer", None)
        if update is not None and next(self.model.buffers(), None) is not None:
            new = batch.mask.copy()
            new[:, : batch.spec.overlap] = False
            new = np.pad(new, ((0, 0), (0, 1)))  # the last observation is the next row's first
            update(batch.to(self.device).model_obs, torch.from_numpy(new).to(self.device))

    def _count_rewards(self, batch: SequenceBatch) -> None:
        """Update the reward scaler, if there is one, with the new rewards."""
        if self.reward_scaler is not None:
            rewards = self._bounded(torch.from_numpy(batch.rewards)).numpy()
            self.reward_scaler.count(rewards, batch)

    # ---- pieces for `insert` and `learn`

    def batch_of(self, spec: StoreSpec, fields: Fields) -> SequenceBatch:
        """Rows of arrays [n, ...] as a batch for this model."""
        inputs = tuple(getattr(self.model, "inputs", ("obs",)))
        return SequenceBatch(fields, spec, self.observation_space, self.action_space, inputs)

    @property
    def reward_unit(self) -> float:
        """The divisor of rewards after scaling and clipping."""
        return 1.0 if self.reward_scaler is None else float(self.reward_scaler.statistics.std)

    @property
    def reward_bound(self) -> float:
        """Bound of single rewards, as the environment gives them, that keeps what is learned from
        within reward_clip and within the bound of normalized rewards; inf: none."""
        bound = self.config.reward_clip or math.inf
        if self.reward_scaler is not None:
            bound = min(bound, self.reward_scaler.statistics.clip * self.reward_unit)
        return bound / self.config.reward_scale

    def rewards(self, rewards: Tensor) -> Tensor:
        """Rewards to learn from, any shape: scaled, clipped, normalized (within +-10)."""
        bounded = self._bounded(rewards)
        return bounded if self.reward_scaler is None else self.reward_scaler.scale(bounded)

    def _bounded(self, rewards: Tensor) -> Tensor:
        clip = self.config.reward_clip
        rewards = rewards * self.config.reward_scale
        return rewards.clamp(-clip, clip) if clip else rewards

    def taken(self, q_values: Tensor, actions: Tensor) -> Tensor:
        """[...]: entries of `q_values` [..., A] for `actions` [...] in the space's convention."""
        index = (actions.long() - self.first_action).unsqueeze(-1)
        return q_values.gather(-1, index).squeeze(-1)

    def selector(self, online: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """Values [..., A] whose maximum selects the action to bootstrap from; -inf where masked."""
        chosen = online.detach() if self.config.double else target
        return chosen if mask is None else chosen.masked_fill(~mask, -math.inf)

    def loss_terms(self, errors: Tensor) -> Tensor:
        """Loss of every error: half its square, or less beyond `huber`."""
        return huber(errors, self.config.huber or math.inf)

    def replay_age(self, rows: np.ndarray, steps: int) -> Tensor:
        """Mean number of agent steps that came after `rows` [n] (serial numbers), a scalar.

        steps: new agent steps in a row.
        """
        assert self.replay is not None
        age = (self.replay.storage.added - 1 - rows).mean() * steps
        return torch.tensor(age, dtype=torch.float32, device=self.device)

    # ---- state

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["target"] = self.target.state_dict()
        state["ratio"] = self.ratio.state_dict()
        if self.reward_scaler is not None:
            state["reward_scaler"] = self.reward_scaler.state_dict()
        state["random"]["replay"] = self.generator.bit_generator.state
        if self.config.save_replay and self.replay is not None:
            state["replay"] = {  # without a copy, except of read-only arrays
                name: torch.from_numpy(array if array.flags.writeable else array.copy())
                for name, array in self.replay.state_dict().items()
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`; without a saved replay, the replay is filled again first.

        Raises ConfigError if the state does not fit.
        """
        super().load_state_dict(state)
        self.target.load_state_dict(renamed(state["target"], self.target.state_dict()))
        self.ratio.load_state_dict(state["ratio"])
        if self.reward_scaler is not None:
            if "reward_scaler" not in state:
                raise ConfigError(
                    "the checkpoint has no reward statistics; set normalize_rewards=False"
                )
            self.reward_scaler.load_state_dict(state["reward_scaler"])
        self.generator.bit_generator.state = state["random"]["replay"]
        if "replay" in state:
            saved = {name: tensor.cpu().numpy() for name, tensor in state["replay"].items()}
            if self.replay is None:
                self._saved_replay = saved
            else:
                self.replay.load_state_dict(saved)
