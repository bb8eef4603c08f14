"""Settings that every learning algorithm has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sampler.checks import check_choice, check_flags, check_numbers


@dataclass(frozen=True)
class LearnerConfig:
    """Settings that every algorithm has. Raises ConfigError for one that cannot work."""

    learning_rate: float = 3e-4
    """Step size of the optimiser at the start."""
    anneal_learning_rate: bool = False
    """Lower the learning rate linearly to 0 at the last step."""
    optimiser: Literal["adam", "rmsprop", "rmsprop_tf"] = "adam"
    """rmsprop_tf is TensorFlow's form: epsilon inside the root, the mean square starting at 1."""
    epsilon: float = 1e-8
    """Added to the optimiser's denominator."""
    rmsprop_decay: float = 0.99
    """Decay per update of RMSProp's mean square."""
    rmsprop_momentum: float = 0.0
    """Momentum of RMSProp's steps."""
    rmsprop_centered: bool = False
    """Divide by the gradients' standard deviation, not by their root mean square."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this norm over all parameters; 0: never."""
    gamma: float = 0.99
    """Discount per step."""
    max_non_finite: int = 10
    """Updates in a row with a non-finite loss or gradient after which the run stops."""
    seed: int = 0
    """Seed for shuffling minibatches."""

    def __post_init__(self) -> None:
        check_numbers(self, "learning_rate", "epsilon", above=0, most=1e3)
        check_numbers(self, "max_grad_norm", least=0, infinite=True)
        check_numbers(self, "seed", whole=True, least=0, most=2**63 - 1)
        check_numbers(self, "gamma", "rmsprop_decay", "rmsprop_momentum", least=0, most=1)
        check_numbers(self, "max_non_finite", whole=True, least=1)
        check_flags(self, "anneal_learning_rate", "rmsprop_centered")
        check_choice(self, "optimiser", ("adam", "rmsprop", "rmsprop_tf"))

    def rows(self, rollout: int, overlap: int) -> dict[str, int]:
        """Values of the sampler's `rollout` and `overlap`: as given, or, if the algorithm's other
        settings determine them, what it needs."""
        return {"rollout": rollout, "overlap": overlap}
