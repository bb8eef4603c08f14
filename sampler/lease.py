"""How long the rows of a batch may be read, and a check that nobody reads them for longer.

A batch is a lease of rows in shared memory, which are reused after its release. A release waits for
copies to a device that still read the rows. In debug mode a `LoanWatch` notices arrays and tensors
that are kept beyond the release, and warns.
"""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

logger = logging.getLogger("fastrl")


class Event(Protocol):
    """A point in a device's queue of work, such as `torch.cuda.Event`."""

    def synchronize(self) -> None:
        """Wait until all work before that point is done."""


class Borrower(Protocol):
    """An object that reads leased rows: a batch, a slice of one, or its tensors."""

    def forget(self) -> None:
        """Drop all arrays."""


class Lease:
    """Whether the rows of a batch may still be read; shared by the batch and all its slices."""

    def __init__(self, release: Callable[[], None] | None = None):
        """`release` gives the rows back and is called once; None: nobody else uses them."""
        self._release = release
        self._borrowers: list[weakref.ref[Borrower]] = []
        self._copies: list[Event] = []
        self.active = True

    def borrow(self, borrower: Borrower) -> None:
        """Make `borrower` drop its arrays when the rows are given back."""
        self._borrowers.append(weakref.ref(borrower))

    def wait_for(self, event: Event) -> None:
        """Do not give the rows back before `event`, recorded behind copies that read them, is
        reached."""
        self._copies.append(event)

    def release(self) -> None:
        """Give the rows back as soon as all copies of them are done. Idempotent."""
        self.active = False
        release, self._release = self._release, None  # leaves no reference cycle with the sampler
        while self._copies:
            self._copies.pop().synchronize()
        for reference in self._borrowers:
            if (borrower := reference()) is not None:
                borrower.forget()
        if release is not None:
            release()


class LoanWatch:
    """Notices arrays and tensors of a batch that are kept after its release.

    Each field is lent as an array whose memory belongs to an object of our own. Every view of it,
    and every tensor that shares it, keeps that object alive, and nothing else does. The variables
    of a loop keep their arrays until they are assigned again in the next turn, so a batch is
    checked when the batch after it is released.
    """

    def __init__(self) -> None:
        self._now: dict[str, weakref.ref[Loan]] = {}
        self._before: dict[str, weakref.ref[Loan]] = {}
        self._told: set[str] = set()

    def lend(self, fields: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The same memory as `fields`, as arrays that are watched."""
        loans = {name: Loan(array) for name, array in fields.items()}
        self._now = {name: weakref.ref(loan) for name, loan in loans.items()}
        return {name: np.asarray(loan) for name, loan in loans.items()}

    def returned(self) -> None:
        """The newest batch was released: warn about fields of the one before that are still in
        use."""
        if kept := self._kept():
            self._told |= kept
            logger.warning(
                "arrays or tensors of a released batch are still in use (%s); they show other data "
                "by now: keep batch.copy(), or clones of the tensors",
                ", ".join(sorted(kept)),
            )
        self._before, self._now = self._now, {}

    def _kept(self) -> set[str]:
        """Fields of the previous batch that are still in use and were not reported yet."""
        kept = {name for name, loan in self._before.items() if loan() is not None} - self._told
        if kept:
            gc.collect()  # arrays held only by unreachable cycles are not in use
            kept = {name for name in kept if self._before[name]() is not None}
        return kept


class Loan:
    """The memory of one field; numpy treats it as the owner of every view."""

    def __init__(self, array: np.ndarray):
        self._array = array
        self.__array_interface__ = array.__array_interface__
