"""Every stored transition of the counter environment is exactly right, in every way of running."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.counting import CounterChecker, run_counter
from helpers.samplers import PROCESSES

from sampler import Sampler

LARGE = replace(PROCESSES, workers=4, envs_per_worker=8, rollout=16, batch=32)
FRAMES = {"max_length": 12, "frames": True}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"overlap": 3},
        {"overlap": 7},
        {"groups": 1},
        {"groups": 4, "batch": 3},
        {"groups": 3, "envs_per_worker": 3, "batch": 5},
        {"batch": 2, "buffers": 2},
        {"batch": 48, "buffers": 2},
        {"rollout": 1},
        {"sync": True},
        {"sync": True, "batch": 2},
        {"workers": 1, "envs_per_worker": 1, "batch": 1, "buffers": 2},
        {"env_kwargs": {"min_length": 1, "max_length": 1}},
        {"env_kwargs": FRAMES},
        {"env_kwargs": {"max_length": 3, "frames": True}, "overlap": 5, "rollout": 7},
    ],
    ids=str,
)
def test_serial(changes):
    with Sampler(replace(PROCESSES, serial=True, **changes)) as sampler:
        run_counter(sampler, 1000)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"overlap": 7, "policy_workers": 2},
        {"policy_workers": 0},
        {"env_kwargs": FRAMES},
        {"groups": 1, "batch": 8, "buffers": 2},
        {"sync": True, "policy_workers": 4},
    ],
    ids=str,
)
def test_processes(changes):
    with Sampler(replace(LARGE, **changes)) as sampler:
        run_counter(sampler, 5000 if changes.get("env_kwargs") else 10_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"overlap": 5},
        {"overlap": 15},
        {"overlap": 11, "policy_workers": 3, "groups": 4},
        {"policy_workers": 4, "groups": 1},
        {"env_kwargs": FRAMES},
        {"env_kwargs": FRAMES, "overlap": 9, "policy_workers": 2},
        {"groups": 3, "envs_per_worker": 6, "batch": 2, "buffers": 2},
        {"batch": 128, "buffers": 2},
        {"sync": True},
        {"sync": True, "batch": 8, "policy_workers": 2},
        {"start_method": "spawn"},
    ],
    ids=str,
)
def test_many_steps_in_processes(changes):
    with Sampler(replace(LARGE, **changes)) as sampler:
        config = sampler.config
        run_counter(sampler, 200_000 * (config.rollout - config.overlap) // config.rollout)


def test_back_pressure_loses_nothing():
    """Every batch is held until no worker can go on."""
    with Sampler(replace(LARGE, buffers=3)) as sampler:
        checker = CounterChecker(sampler)
        for _ in range(6):
            checker.add(sampler.get_batch())
            checker.wait_for_back_pressure()
            steps = sampler.stats()["steps"]
            assert sampler.stats()["steps"] == steps
        run_counter(sampler, 5000, checker)


@pytest.mark.parametrize(
    ("name", "index", "change"),
    [
        ("rewards", (3, 2), 1),
        ("actions", (0, 1), 1),
        ("age", (2, 8), 1),
        ("mask", (1, 4), True),
        ("terminated", (1, 4), True),
        ("truncated", (1, 4), True),
        ("lane_id", (5,), 1),
        ("obs", (4, 7, 2), 1),
        ("obs", (4, 7, 0), 1),
        ("log_probs", (0, 0), 1),
    ],
)
def test_the_checker_finds_one_wrong_value(name, index, change):
    with Sampler(replace(PROCESSES, serial=True)) as sampler:
        batch = sampler.get_batch()
        array = batch[name]
        array[index] = ~array[index] if array.dtype == bool else array[index] + change
        with pytest.raises((AssertionError, KeyError, IndexError)):
            CounterChecker(sampler).add(batch)


@pytest.mark.parametrize("copies", [0, 2])
def test_the_checker_finds_lost_and_doubled_batches(copies):
    with Sampler(replace(PROCESSES, serial=True)) as sampler:
        checker = CounterChecker(sampler)
        for number in range(5):
            batch = sampler.get_batch()
            for _ in range(copies if number == 2 else 1):
                checker.add(batch)
        with pytest.raises(AssertionError, match="lost"):
            checker.check()
