from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.samplers import SERIAL

from sampler import Sampler
from sampler.lease import Lease, LoanWatch


class Borrower:
    forgotten = 0

    def forget(self):
        self.forgotten += 1


def test_a_release_comes_after_everything_that_it_waits_for():
    order = []
    lease, borrower = Lease(lambda: order.append(f"given back {borrower.forgotten}")), Borrower()
    lease.borrow(borrower)

    class Event:
        def synchronize(self):
            order.append("copied")

    lease.wait_for(Event())
    assert lease.active
    lease.release()
    lease.release()
    assert order == ["copied", "given back 1"]
    assert not lease.active


def test_borrowers_are_not_kept_by_their_lease():
    import weakref

    lease, borrower = Lease(), Borrower()
    lease.borrow(borrower)
    alive = weakref.ref(borrower)
    del borrower
    assert alive() is None
    lease.release()


def lent(watch):
    fields = {"rewards": np.arange(6.0).reshape(2, 3), "mask": np.ones((2, 3), bool)}
    loans = watch.lend(fields)
    for name, array in fields.items():
        assert np.shares_memory(loans[name], array)
        np.testing.assert_array_equal(loans[name], array)
    return loans


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if "released" in record.getMessage()]


@pytest.mark.parametrize(
    "keep",
    [
        lambda array: array,
        lambda array: array[1, 1:],
        lambda array: array.T[::-1],
        torch.from_numpy,
        lambda array: torch.from_numpy(array)[0],
        lambda array: torch.from_numpy(array[:1]).view(-1).detach(),
    ],
)
def test_whatever_looks_into_a_field_after_its_time_is_noticed(keep, caplog):
    watch = LoanWatch()
    kept = keep(lent(watch)["rewards"])
    watch.returned()
    assert not warnings_of(caplog)  # a loop's variables last until its next turn
    lent(watch)
    watch.returned()
    (warning,) = warnings_of(caplog)
    assert "(rewards)" in warning
    assert "batch.copy()" in warning
    watch.returned()
    assert len(warnings_of(caplog)) == 1
    del kept


def test_what_is_gone_or_copied_or_garbage_is_not(caplog):
    watch = LoanWatch()
    loans = lent(watch)
    kept = [loans["rewards"].copy(), torch.from_numpy(loans["rewards"]).clone(), loans["mask"] + 1]
    cycle = [loans["mask"]]
    cycle.append(cycle)
    del loans, cycle
    watch.returned()
    watch.returned()
    assert not warnings_of(caplog)
    assert len(kept) == 3


def test_a_loop_that_keeps_nothing_is_not_warned(caplog):
    with caplog.at_level(logging.WARNING), Sampler(replace(SERIAL, debug=True)) as sampler:
        for _, batch in zip(range(6), sampler, strict=False):
            tensors = batch.to("cpu")
            rewards, obs = tensors.rewards, batch[1:3].obs
        assert rewards is not None
        assert obs is not None
    assert not warnings_of(caplog)


def test_a_loop_that_keeps_tensors_is_warned_once(caplog):
    kept = []
    with caplog.at_level(logging.WARNING), Sampler(replace(SERIAL, debug=True)) as sampler:
        for _, batch in zip(range(6), sampler, strict=False):
            kept.append(batch.to("cpu").rewards)
    (warning,) = warnings_of(caplog)
    assert "(rewards)" in warning
