"""Ape-X DQN: double dueling n-step Q-learning with prioritised replay (Horgan et al. 2018).

Plain DQN is the same learner with uniform replay, one step and few lanes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sampler.batch import SequenceBatch
from sampler.checks import check_choice, check_numbers
from sampler.envs import make
from sampler.errors import ConfigError
from sampler.learner.algorithms.q_learner import SMALLER_REPLAY, QLearner
from sampler.learner.algorithms.q_learner_config import QLearnerConfig
from sampler.learner.functional.targets import double_q_values, n_step_targets
from sampler.learner.replay.hindsight import Hindsight
from sampler.learner.replay.sequence_replay import capacity_in_rows, row_fields
from sampler.learner.replay.transition_replay import TransitionReplay
from sampler.spaces import leaves, unflatten

if TYPE_CHECKING:
    from sampler.sampler import Sampler


@dataclass(frozen=True)
class ApeXConfig(QLearnerConfig):
    """Settings of Ape-X DQN; the defaults are the paper's, except the size of the replay."""

    learning_rate: float = 6.25e-5
    optimiser: Literal["adam", "rmsprop", "rmsprop_tf"] = "rmsprop_tf"
    rmsprop_decay: float = 0.95
    rmsprop_centered: bool = True
    epsilon: float = 1.5e-7
    max_grad_norm: float = 40.0
    batch_size: int = 512
    hindsight: Literal["none", "future", "final", "episode"] = "none"
    """Which goals replace the desired ones, in environments with goals: those reached later in the
    episode, at its end, or at any time in it."""
    hindsight_goals: int = 4
    """Transitions with a replaced goal for each one that keeps its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "hindsight_goals", whole=True, least=1)
        check_choice(self, "hindsight", ("none", "future", "final", "episode"))
        if self.hindsight != "none" and self.prioritised:
            raise ConfigError(
                f"alpha={self.alpha} with hindsight={self.hindsight!r}: priorities of replaced "
                "goals would become those of the real ones; set alpha=0"
            )

    @property
    def overlap(self) -> int:
        """`SamplerConfig.overlap` that these transitions need, so that every step starts one in
        some row.

        With priorities a row holds one step more, so that the actor's own Q-values after every
        transition are known.
        """
        return self.n_step - 1 + self.prioritised

    def rows(self, rollout: int, overlap: int) -> dict[str, int]:
        return {"rollout": rollout, "overlap": self.overlap}


class ApeX(QLearner):
    """Learns from n-step transitions drawn from replayed rows; for models without memory.

    hindsight: how goals are replaced and rewards computed anew (`hindsight_of`), where the
    configuration asks for that.
    """

    config: ApeXConfig
    replay: TransitionReplay | None

    def __init__(
        self,
        model: nn.Module,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: ApeXConfig,
        device: str = "auto",
        precision: str = "auto",
        hindsight: Hindsight | None = None,
    ) -> None:
        super().__init__(model, observation_space, action_space, config, device, precision)
        name = type(self).__name__
        if self.model.initial_state(1).numel():
            raise ConfigError(
                f"{name} replays single transitions and cannot train a recurrent core; "
                "use algo=r2d2, or a model without core"
            )
        inputs = tuple(getattr(self.model, "inputs", ("obs",)))
        if inputs != ("obs",):
            raise ConfigError(
                f"{name} replays observations alone, and this model's inputs are "
                f"{', '.join(inputs)}; use algo=r2d2, or a model with inputs=('obs',)"
            )
        if (config.hindsight != "none") != (hindsight is not None):
            raise ConfigError(
                f"hindsight={config.hindsight!r} does not fit the goals that {name} was given; "
                "make them with hindsight_of(env, ...)"
            )
        self.hindsight = hindsight
        self._names = [leaf.name for leaf in leaves(observation_space, "obs")]
        # State and `is_first`, which a model without memory takes but does not use.
        self._state = self.model.initial_state(config.batch_size).to(self.device)
        self._is_first = torch.zeros(config.batch_size, dtype=torch.bool, device=self.device)

    @classmethod
    def for_sampler(
        cls, sampler: Sampler, config: Any, device: str = "auto", precision: str = "auto"
    ) -> ApeX:
        assert sampler.model is not None
        hindsight = None
        if config.hindsight != "none":
            env, kwargs = sampler.config.env, sampler.config.env_kwargs
            hindsight = hindsight_of(env, kwargs, config.hindsight, config.hindsight_goals)
        spaces = sampler.observation_space, sampler.action_space
        return cls(sampler.model, *spaces, config, device, precision, hindsight)

    @property
    def stored_steps(self) -> int:
        return 0 if self.replay is None else len(self.replay)

    @property
    def steps_per_update(self) -> int:
        return self.config.batch_size

    # ---- into the replay

    def make_replay(self, batch: SequenceBatch) -> TransitionReplay:
        config, spec = self.config, batch.spec
        return TransitionReplay(
            row_fields(batch.fields),
            capacity_in_rows(config.replay_capacity, spec.steps, config.overlap),
            config.n_step,
            config.gamma,
            config.overlap,
            hindsight=self.hindsight,
            alpha=config.alpha,
            beta=config.beta,
            path=config.replay_path,
            remedy=SMALLER_REPLAY,
            max_bytes=config.replay_bytes,
        )

    def insert(self, batch: SequenceBatch) -> None:
        assert self.replay is not None
        priorities = self.actor_priorities(batch) if self.config.prioritised else None
        self.replay.add(batch.fields, priorities)

    def actor_priorities(self, batch: SequenceBatch) -> np.ndarray:
        """|errors| [B, T] of the transitions that start in new rows, from the Q-values with which
        their actions were chosen; meaningless in the last `overlap` steps."""
        data = batch.to("cpu")
        q_values = data.q_values
        following = torch.cat((q_values[:, 1:], torch.zeros_like(q_values[:, :1])), dim=1)
        mask = None if data.action_mask is None else data.action_mask[:, 1:]
        targets = n_step_targets(
            self.config.gamma * ~data.terminated,
            self.rewards(torch.where(data.mask, data.rewards, 0.0)),
            double_q_values(following, self.selector(following, following, mask)),
            data.terminated | data.truncated,
            self.config.n_step,
        )
        return (targets - self.taken(q_values, data.actions)).abs().numpy()

    # ---- out of the replay

    def learn(self) -> bool:
        assert self.replay is not None
        config = self.config
        self.replay.reward_clip = self.reward_bound  # follows the statistics
        arrays, index, weights = self.replay.sample(
            config.batch_size, self.generator, out=self._buffers, beta=self.beta
        )
        fields = {
            name: torch.from_numpy(array).to(self.device, non_blocking=True)
            for name, array in arrays.items()
        }
        with self.autocast():
            q_values = self._q_values(self.model, fields, "")
            targets = self._targets(fields)
        taken = self.taken(q_values, fields["actions"])
        errors = targets - taken
        importance = torch.from_numpy(weights).to(self.device)
        loss = (importance * self.loss_terms(errors)).mean()
        made = self.step(loss, {"q_values": q_values, "targets": targets})
        if made:
            absolute = errors.detach().abs()
            if config.prioritised:
                self.replay.update_priorities(index, absolute.cpu().numpy())
            self.metrics.add(
                {
                    "losses/q_loss": loss,
                    "losses/td_error": absolute.mean(),
                    "losses/q_values": taken.mean(),
                    "perf/replay_age": self.replay_age(
                        index // self.replay.steps, self.replay.steps - config.overlap
                    ),
                }
            )
        return made

    @torch.no_grad()
    def _targets(self, fields: Mapping[str, Tensor]) -> Tensor:
        """n-step targets [n] float32 of transitions."""
        target = self._q_values(self.target, fields, "next_")
        online = self._q_values(self.model, fields, "next_") if self.config.double else target
        mask = fields.get("next_action_mask")
        values = double_q_values(target, self.selector(online, target, mask))
        rewards = fields["rewards"] * (self.config.reward_scale / self.reward_unit)
        return rewards + fields["discounts"] * values

    def _q_values(self, network: Any, fields: Mapping[str, Tensor], prefix: str) -> Tensor:
        """[n, A] float32, of the observations before or after (`next_`) the transitions."""
        parts = [fields[prefix + name] for name in self._names]
        obs = unflatten(self.observation_space, parts)
        return network.step(obs, self._state, self._is_first)[0]["q_values"].float()


class DQN(ApeX):
    """The same with other settings: one step, uniform replay and few lanes (Mnih et al. 2015)."""

    @classmethod
    def saved_name(cls) -> str:
        return ApeX.saved_name()  # as in all checkpoints so far, which do not differ


def hindsight_of(
    env: str | Callable[..., Any],
    env_kwargs: Mapping[str, Any] | None = None,
    strategy: Literal["future", "final", "episode"] = "future",
    goals: int = 4,
) -> Hindsight:
    """Goal replacement, with rewards and ends computed by an environment made for it, which is
    closed when the result is no longer used.

    Raises ConfigError for an environment without goals: it needs Dict observations with
    `achieved_goal` and `desired_goal`, and `compute_reward`.
    """
    made: Any = make(env, **(env_kwargs or {}))
    space = getattr(made, "single_observation_space", made.observation_space)
    has_goals = isinstance(space, gym.spaces.Dict) and {"achieved_goal", "desired_goal"} <= set(
        space.spaces
    )
    inner = made.unwrapped
    if not has_goals or not hasattr(inner, "compute_reward"):
        made.close()
        raise ConfigError(
            f"env={env!r} has no goals to replace; use hindsight=none, or an environment with "
            "achieved_goal, desired_goal and compute_reward"
        )
    hindsight = Hindsight(
        inner.compute_reward, getattr(inner, "compute_terminated", None), strategy, goals
    )
    weakref.finalize(hindsight, made.close)
    return hindsight
