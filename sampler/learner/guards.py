"""Keeps non-finite losses and gradients from the weights, and stops a run with nothing but
those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from sampler.errors import FastrlError


class NonFiniteError(FastrlError, ArithmeticError):
    """Too many updates in a row had a non-finite loss or gradient (exit code 1)."""


class FiniteGuard:
    """Counts the updates that were skipped, and gives up after `limit` of them in a row."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.skipped = 0
        self.in_a_row = 0
        self.first_bad = ""

    def good(self) -> None:
        """An update was finite."""
        self.in_a_row = 0

    def bad(self, name: str) -> None:
        """An update was skipped; `name` says which tensor was not finite first.

        Raises NonFiniteError at the `limit`-th in a row.
        """
        self.skipped += 1
        self.in_a_row += 1
        if self.in_a_row == 1:
            self.first_bad = name
        if self.in_a_row >= self.limit:
            raise NonFiniteError(
                f"{self.in_a_row} updates in a row were not finite (first: {self.first_bad}); "
                "lower the learning rate, clip or scale the rewards, or look for NaN in the "
                "observations, and resume from the last checkpoint"
            )

    def state_dict(self) -> dict[str, int]:
        return {"skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.skipped = state["skipped"]
        self.in_a_row = 0


def first_non_finite(tensors: Iterable[tuple[str, Tensor | None]]) -> str | None:
    """The name of the first tensor that holds NaN or an infinity; None where all are finite."""
    for name, tensor in tensors:
        if tensor is not None and not torch.isfinite(tensor).all():
            return name
    return None
