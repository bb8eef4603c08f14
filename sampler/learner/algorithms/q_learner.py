"""What the learners of Q-values share: replay and its ratio, target network, exploration, state.

An update takes the sampler's batch into the replay and then makes as many optimiser steps as the
replay ratio allows, each on a sample of its own.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sampler.batch import SequenceBatch
from sampler.errors import ConfigError
from sampler.learner.base import Learner, LearnerConfig, Publish, check_range
from sampler.learner.functional.losses import huber
from sampler.learner.functional.normalize import RewardScaler
from sampler.learner.functional.schedules import LinearSchedule
from sampler.learner.metrics import lag_metrics
from sampler.learner.replay.ratio import ReplayRatio
from sampler.learner.replay.row_storage import Fields
from sampler.learner.replay.sequence_replay import SequenceReplay
from sampler.learner.replay.transition_replay import TransitionReplay
from sampler.models import epsilon_ladder, renamed
from sampler.shm.store import StoreSpec

if TYPE_CHECKING:
    from sampler.config import SamplerConfig
    from sampler.sampler import Sampler

AnyReplay = SequenceReplay | TransitionReplay

FEWER = "lower replay_capacity, or set replay_path to a directory to keep it on disk"


@dataclass(frozen=True)
class QLearnerConfig(LearnerConfig):
    """Settings of every learner of Q-values."""

    n_step: int = 3
    """Rewards summed in a target before it bootstraps."""
    double: bool = True
    """Let the online network choose the action whose value the target network gives."""
    batch_size: int = 64
    """Sequences (R2D2) or transitions (Ape-X, DQN) in an update."""
    target_every: int = 2500
    """Updates between two copies of the weights into the target network."""
    huber: float = 0.0
    """Errors beyond this count linearly in the loss, not squared; 0: all squared."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this before anything else."""
    reward_clip: float = 0.0
    """Rewards are clipped to [-reward_clip, reward_clip]; 0: not at all."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return."""
    replay_ratio: float = 1.0
    """Steps learned for each step sampled; the learner and the sampler wait for each other."""
    replay_capacity: int = 100_000
    """Agent steps that the replay holds."""
    replay_gib: float = 0.0
    """GiB that its rows may take; where that is less, the replay holds fewer steps. 0: no bound."""
    replay_path: str | None = None
    """Directory to keep the replay in, in an unnamed file; None: in memory."""
    save_replay: bool = False
    """Save the replay with every checkpoint."""
    learning_starts: int = 1_000
    """Agent steps in the replay before the first update, or as many as it can hold."""
    alpha: float = 0.6
    """Exponent of priorities when sampling; 0: uniform replay."""
    beta: float = 0.4
    """Exponent of the importance weights that correct for it."""
    beta_end: float | None = None
    """What it changes to, linearly until the last step; None: it stays."""
    exploration: Literal["ladder", "anneal"] = "ladder"
    """Random actions. ladder: lane i of N takes them with probability
    base ** (1 + exponent i / (N - 1)); anneal: all lanes alike, ever fewer."""
    exploration_base: float = 0.4
    """Probability in the ladder's first lane."""
    exploration_exponent: float = 7.0
    """Steepness of the ladder."""
    exploration_start: float = 1.0
    """Annealed probability at the first step."""
    exploration_end: float = 0.05
    """Annealed probability after the last annealed step."""
    exploration_steps: int = 10_000
    """Agent steps over which the annealed probability falls."""
    publish_every: int = 50
    """Updates after which the policy workers get new weights, beside the end of every batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("replay_ratio", "reward_scale"), above=0.0)
        check_range(self, ("huber", "reward_clip", "alpha", "beta", "replay_gib"), least=0.0)
        if self.beta_end is not None:
            check_range(self, ("beta_end",), least=0.0)
        check_range(self, ("n_step", "batch_size", "target_every", "publish_every"), least=1)
        check_range(self, ("replay_capacity",), least=1)
        check_range(self, ("learning_starts", "exploration_steps"), least=0)
        names = ("exploration_base", "exploration_start", "exploration_end")
        check_range(self, names, least=0.0, most=1.0)
        check_range(self, ("exploration_exponent",), least=0.0)
        if self.exploration not in ("ladder", "anneal"):
            raise ConfigError(f"exploration={self.exploration!r} is not one of ladder, anneal")
        if self.learning_starts > self.replay_capacity:
            raise ConfigError(
                f"learning_starts={self.learning_starts} exceeds "
                f"replay_capacity={self.replay_capacity}: learning would never start"
            )

    @property
    def prioritised(self) -> bool:
        """Whether priorities make any difference."""
        return self.alpha > 0

    @property
    def replay_bytes(self) -> int | None:
        """Bound of the replay's rows in bytes; None without one."""
        return int(self.replay_gib * 2**30) if self.replay_gib else None

    def epsilons(self, lanes: int, steps: int) -> np.ndarray:
        """Probability of a random action in every lane after `steps` agent steps, float [lanes]."""
        if self.exploration == "ladder":
            return epsilon_ladder(lanes, self.exploration_base, self.exploration_exponent).numpy()
        schedule = LinearSchedule(
            self.exploration_start, self.exploration_end, self.exploration_steps
        )
        return np.full(lanes, schedule(steps))


class QLearner(Learner):
    """A learner whose model gives Q-values; subclasses say what is replayed and how it is learned.

    The replay is made by `prepare`, or else when the first batch shows what its rows look like.
    """

    config: QLearnerConfig
    beta: float
    """Exponent of the importance weights now."""

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
        """Of what is replayed."""
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
        """One optimiser step on a sample of the replay; whether it was made."""

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
            self._open_replay(sampler.empty_batch())

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
        if self.replay is None:
            self._open_replay(batch)
        lags = self._lags(batch)
        new_steps = int(batch.mask[:, batch.spec.overlap :].sum())
        rows = self._real_rows(batch)
        if len(rows):
            self._update_normalizer(rows)
            self._count_rewards(rows)
            self.insert(rows)
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

    def exploration(self, lanes: int, steps: int) -> np.ndarray:
        return self.config.epsilons(lanes, steps)

    def check_sampler(self, config: SamplerConfig) -> None:
        super().check_sampler(config)
        self._check_rows(config.rollout, config.overlap)

    def _check_rows(self, rollout: int, overlap: int) -> None:
        """Raise ConfigError unless the sampler's rows are as this learner replays them."""
        given = {"rollout": rollout, "overlap": overlap}
        for name, wanted in self.config.rows(rollout, overlap).items():
            if given[name] != wanted:
                raise ConfigError(
                    f"{name}={given[name]} does not suit {type(self).__name__}; "
                    f"its settings need {name}={wanted}"
                )

    @property
    def _full(self) -> bool:
        """Whether the replay holds all it can: of transitions fewer than steps, for an episode's
        end takes a step of a row that starts none."""
        return self.replay is not None and self.replay.storage.full

    def _open_replay(self, batch: SequenceBatch) -> None:
        self._check_rows(batch.spec.steps, batch.spec.overlap)
        self.replay = self.make_replay(batch)
        self._buffers = self.replay.buffers(self.config.batch_size)
        if self.device.type == "cuda":  # transfers from pinned memory are asynchronous
            self._buffers = {
                name: torch.from_numpy(array).pin_memory().numpy()
                for name, array in self._buffers.items()
            }
        if self._saved_replay:
            self.replay.load(self._saved_replay)
            self._saved_replay = {}

    def _real_rows(self, batch: SequenceBatch) -> SequenceBatch:
        """`batch` without rows that were given up: they hold anything."""
        kept = batch.mask.any(1)
        if kept.all():
            return batch
        rows = {name: array[kept] for name, array in batch.fields.items()}
        return self.batch_of(batch.spec, rows)

    def _lags(self, batch: SequenceBatch) -> dict[str, float]:
        """Figures about the lag of the batch that the sampler hands over."""
        versions, real = batch.policy_version, batch.mask
        self.version = max(self.version, int(versions[real].max(initial=0)))
        return lag_metrics(self.version - versions, real, real)

    def _update_normalizer(self, batch: SequenceBatch) -> None:
        """Let the model see the new observations, for its running statistics (in buffers)."""
        update = getattr(self.model, "update_normalizer", None)
        if update is not None and next(self.model.buffers(), None) is not None:
            new = batch.mask.copy()
            new[:, : batch.spec.overlap] = False
            new = np.pad(new, ((0, 0), (0, 1)))  # the last observation is the next row's first
            update(batch.to(self.device).model_obs, torch.from_numpy(new).to(self.device))

    def _count_rewards(self, batch: SequenceBatch) -> None:
        """Let the reward scaler, if there is one, see the new rewards."""
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
        """What rewards are divided by after they were scaled and clipped."""
        return 1.0 if self.reward_scaler is None else float(self.reward_scaler.statistics.std)

    def rewards(self, rewards: Tensor) -> Tensor:
        """Rewards to learn from, any shape: scaled, clipped, normalized."""
        return self._bounded(rewards) / self.reward_unit

    def _bounded(self, rewards: Tensor) -> Tensor:
        clip = self.config.reward_clip
        rewards = rewards * self.config.reward_scale
        return rewards.clamp(-clip, clip) if clip else rewards

    def taken(self, q_values: Tensor, actions: Tensor) -> Tensor:
        """[...]: entries of `q_values` [..., A] for `actions` [...] in the space's convention."""
        index = (actions.long() - self.first_action).unsqueeze(-1)
        return q_values.gather(-1, index).squeeze(-1)

    def selector(self, online: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """Values [..., A] whose largest one says which action bootstraps; forbidden ones -inf."""
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
            state["reward_scaler"] = self.reward_scaler.state()
        state["random"]["replay"] = self.generator.bit_generator.state
        if self.config.save_replay and self.replay is not None:
            state["replay"] = {  # without a copy, except of what may only be read
                name: torch.from_numpy(array if array.flags.writeable else array.copy())
                for name, array in self.replay.state().items()
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`; without a saved replay it is filled anew first.

        Raises ConfigError where it does not fit.
        """
        super().load_state_dict(state)
        self.target.load_state_dict(renamed(state["target"], self.target.state_dict()))
        self.ratio.load_state_dict(state["ratio"])
        if self.reward_scaler is not None:
            if "reward_scaler" not in state:
                raise ConfigError(
                    "the checkpoint has no reward statistics; set normalize_rewards=False"
                )
            self.reward_scaler.load_state(state["reward_scaler"])
        self.generator.bit_generator.state = state["random"]["replay"]
        if "replay" in state:
            saved = {name: tensor.cpu().numpy() for name, tensor in state["replay"].items()}
            if self.replay is None:
                self._saved_replay = saved
            else:
                self.replay.load(saved)
