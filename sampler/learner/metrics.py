"""What a learner reports: means over an update, and warnings when training goes wrong."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from sampler.models.distributions.gaussian import GaussianFactory
from sampler.spaces import leaves


class MetricMeans:
    """Means of scalars over the minibatches of an update, with one transfer at the end."""

    def __init__(self) -> None:
        self._values: dict[str, list[Tensor]] = {}

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Keep one scalar per name; tensors stay on their device until `means`."""
        for name, value in values.items():
            self._values.setdefault(name, []).append(value.detach())

    def means(self) -> dict[str, float]:
        """The mean of every name so far; then starts again."""
        if not self._values:
            return {}
        columns = [torch.stack(values).float().mean() for values in self._values.values()]
        result = dict(zip(self._values, torch.stack(columns).tolist(), strict=True))
        self._values = {}
        return result


def lag_metrics(lag: np.ndarray, real: np.ndarray, used: np.ndarray) -> dict[str, float]:
    """Figures about the policy lag of a batch.

    lag: [B, T] versions between acting and learning; real: [B, T] bool, transitions that happened;
    used: [B, T] bool, those in the loss.
    """
    lags = lag[real]
    if not lags.size:
        lags = np.zeros(1)
    return {
        "perf/policy_lag_mean": float(lags.mean()),
        "perf/policy_lag_max": float(lags.max()),
        "perf/policy_lag_min": float(lags.min()),
        "perf/valid_fraction": float(used.mean()),
    }


class Alarms:
    """Watches the metrics of successive updates and warns once of each fault.

    A fault must show in half of the last `patience` updates, since single figures are noisy; it is
    reported again only after `patience` updates without it.
    """

    def __init__(self, action_space: gym.Space, patience: int = 100) -> None:
        self.patience = patience
        self._entropy_floor = entropy_floor(action_space)
        self._recent: dict[str, deque[bool]] = {}
        self._reported: set[str] = set()
        self._lag_start: float | None = None
        self._updates = 0

    def check(self, metrics: Mapping[str, float]) -> list[str]:
        """The warnings that are due after this update's metrics; usually none."""
        self._updates += 1
        return [
            message
            for name, (fault, message) in self._faults(metrics).items()
            if self._persists(name, fault)
        ]

    def _persists(self, name: str, fault: bool) -> bool:
        """Record whether a fault shows; True if it has to be reported now."""
        recent = self._recent.setdefault(name, deque(maxlen=self.patience))
        recent.append(fault)
        if not any(recent):
            self._reported.discard(name)
        often = len(recent) == self.patience and 2 * sum(recent) >= self.patience
        if not (fault and often) or name in self._reported:
            return False
        self._reported.add(name)
        return True

    def _faults(self, metrics: Mapping[str, float]) -> dict[str, tuple[bool, str]]:
        def value(name: str, default: float = 0.0) -> float:
            return metrics.get(name, default)

        faults: dict[str, tuple[bool, str]] = {}
        if "losses/entropy" in metrics:
            entropy = value("losses/entropy")
            faults["entropy"] = (
                entropy < self._entropy_floor,
                f"entropy is gone ({entropy:.3g}): the policy no longer explores; raise "
                "entropy_coef or lower the learning rate",
            )
        if "losses/approx_kl" in metrics:
            kl = value("losses/approx_kl")
            faults["kl"] = (
                kl > 0.1,
                f"approximate KL is high ({kl:.3g}): updates move the policy too far; lower the "
                "learning rate, the epochs or the policy lag",
            )
        if "losses/explained_variance" in metrics:
            explained = value("losses/explained_variance")
            # if targets hardly vary, even good values do not explain the rest
            error, level = 2 * value("losses/value_loss"), value("losses/value_targets")
            faults["explained_variance"] = (
                explained < -0.05 and error > (0.1 * level) ** 2,
                f"explained variance stays negative ({explained:.3g}): the values are worse than "
                "a constant; scale or clip the rewards, or raise value_coef",
            )
        if "perf/policy_lag_mean" in metrics:
            lag = value("perf/policy_lag_mean")
            if self._lag_start is None and self._updates >= self.patience:
                self._lag_start = lag
            faults["lag"] = (
                self._lag_start is not None and lag > max(10.0, 2 * self._lag_start),
                f"policy lag grows ({lag:.1f} versions): learning falls behind acting; use fewer "
                "environments, a larger batch or fewer minibatches",
            )
            newest = value("perf/policy_lag_min")
            faults["weights"] = (
                newest > self.patience,
                f"published weights do not arrive: the newest step is {newest:.0f} versions old; "
                "check that the policy workers are alive",
            )
        return faults


def entropy_floor(action_space: gym.Space) -> float:
    """Entropy below which a policy on `action_space` counts as collapsed, in nats.

    1% of the uniform distribution's for discrete parts; a standard deviation of 0.005 half ranges
    (or 0.005, where there are no bounds) for each continuous one.
    """
    total = 0.0
    for leaf in leaves(action_space, "actions"):
        space: Any = leaf.space
        if isinstance(space, gym.spaces.Discrete):
            total += 0.01 * math.log(max(int(space.n), 1))
        elif isinstance(space, gym.spaces.MultiDiscrete):
            total += 0.01 * float(np.log(space.nvec).sum())
        elif isinstance(space, gym.spaces.MultiBinary):
            total += 0.01 * math.prod(leaf.shape) * math.log(2)
        else:
            # entropy is in the space's units
            units = GaussianFactory(space, squash=False, normalized=True).log_scale
            gaussian = math.log(0.005) + 0.5 * math.log(2 * math.pi * math.e)
            total += math.prod(leaf.shape) * gaussian + units
    return total
