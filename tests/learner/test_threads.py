"""The learner's threads follow what is measured."""

from __future__ import annotations

import pytest
import torch

from sampler.learner.threads import LearnerThreads
from sampler.learner.trainer import Progress


@pytest.fixture(autouse=True)
def restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def train(hook, seconds, updates_per_second, begin=0, start=0.0):
    """Progress once a second; the rate is a function of torch's threads. Returns the updates."""
    updates = begin
    for second in range(seconds):
        hook(Progress(run_seconds=start + second, updates=int(updates)))
        updates += updates_per_second(torch.get_num_threads())
    return int(updates)


@pytest.mark.parametrize(
    ("many", "chosen"), [(30.0, 2), (10.0, 1), (20.2, 1)], ids=["faster", "slower", "as fast"]
)
def test_the_faster_number_of_threads_is_kept(many, chosen):
    hook = LearnerThreads(spare=1, cores=2)
    assert torch.get_num_threads() == 1
    train(hook, 40, {1: 20.0, 2: many}.get)
    assert torch.get_num_threads() == hook.threads == chosen


def test_both_numbers_are_tried():
    seen = set()

    def rate(threads):
        seen.add(threads)
        return 10.0

    train(LearnerThreads(spare=2, cores=3), 40, rate)
    assert seen == {2, 3}


def test_time_between_runs_does_not_count():
    hook = LearnerThreads(spare=1, cores=2)
    rate = {1: 20.0, 2: 30.0}.get
    updates = train(hook, 8, rate)
    for _ in range(6):  # each begins at 0 seconds again
        updates = train(hook, 8, rate, begin=updates)
    assert hook.threads == 2


def test_nothing_is_tried_without_more_cores():
    hook = LearnerThreads(spare=2, cores=2)
    train(hook, 40, lambda threads: 1.0)
    assert torch.get_num_threads() == 2
