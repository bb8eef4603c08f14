"""Settings of the learners of Q-values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sampler.checks import check_choice, check_flags, check_numbers
from sampler.errors import ConfigError
from sampler.learner.config import LearnerConfig
from sampler.learner.functional.schedules import LinearSchedule
from sampler.models import epsilon_ladder


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
    """Divide rewards by the running standard deviation of the discounted return, within +-10."""
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
    base ** (1 + exponent i / (N - 1)), a single lane as with anneal; anneal: all lanes alike, ever
    fewer."""
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
        check_numbers(self, "replay_ratio", "reward_scale", above=0)
        check_numbers(self, "huber", "reward_clip", least=0, infinite=True)
        check_numbers(self, "alpha", "beta", "replay_gib", "exploration_exponent", least=0)
        check_numbers(self, "beta_end", least=0, optional=True)
        counts = ("n_step", "batch_size", "target_every", "publish_every", "replay_capacity")
        check_numbers(self, *counts, whole=True, least=1)
        check_numbers(self, "learning_starts", "exploration_steps", whole=True, least=0)
        shares = ("exploration_base", "exploration_start", "exploration_end")
        check_numbers(self, *shares, least=0, most=1)
        check_flags(self, "double", "normalize_rewards", "save_replay")
        check_choice(self, "exploration", ("ladder", "anneal"))
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
        """Probability of a random action in every lane after `steps` agent steps, float [lanes].

        A ladder needs lanes that explore little beside those that explore much, so a single lane
        begins with the one and ends with the other.
        """
        if self.exploration == "ladder" and lanes > 1:
            return epsilon_ladder(lanes, self.exploration_base, self.exploration_exponent).numpy()
        schedule = LinearSchedule(
            self.exploration_start, self.exploration_end, self.exploration_steps
        )
        return np.full(lanes, schedule(steps))
