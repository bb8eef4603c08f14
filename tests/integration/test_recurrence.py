"""Every row begins with exactly the recurrent state that its lane had, whatever came before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.counting import CounterChecker, run_counter
from helpers.models import ACTIONS, History, histories, make_history

from sampler import Sampler, SamplerConfig

SMALL = SamplerConfig(
    env="fastrl/Counter-v0",
    env_kwargs={"max_length": 30},
    workers=2,
    envs_per_worker=4,
    rollout=8,
    batch=8,
    precision="float32",
    seed=7,
    serial=True,
)
LARGE = replace(SMALL, workers=4, envs_per_worker=8, rollout=16, batch=32, serial=False)


def check_states(checker: CounterChecker) -> None:
    """Rows hold the states, values and logits that follow from all that their lanes observed."""
    steps, overlap = checker.spec.steps, checker.spec.overlap
    for rows in checker.rows.values():
        rows.sort(key=lambda row: row.start)
        parts = [row.fields["decoded"][overlap:-1] for row in rows[1:]]
        decoded = np.concatenate([rows[0].fields["decoded"][:-1], *parts])
        before, after = histories(decoded)
        for row in rows:
            times = slice(row.start, row.start + steps)
            np.testing.assert_array_equal(row.state, before[row.start])
            np.testing.assert_array_equal(row.fields["values"], after[times, 0])
            logits = (after[times, 1, None] + np.arange(ACTIONS)) % 5
            np.testing.assert_array_equal(row.fields["logits"], logits)
            np.testing.assert_array_equal(row.fields["values"], 1 + row.fields["age"][:-1])


def run(config: SamplerConfig, steps: int) -> None:
    with Sampler(config, make_history) as sampler:
        checker = CounterChecker(sampler)
        model = History()
        per_batch = config.batch * (config.rollout - config.overlap)
        for _ in range(steps // per_batch):
            checker.add(sampler.get_batch())
            sampler.publish(model)
        run_counter(sampler, per_batch, checker)
        check_states(checker)
        versions = [row.fields["policy_version"] for rows in checker.rows.values() for row in rows]
        assert np.max(versions) > 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"overlap": 2},
        {"overlap": 4},
        {"overlap": 7},
        {"overlap": 5, "groups": 4, "batch": 3},
        {"sync": True},
        {"policy_workers": 0, "overlap": 3},
        {"rollout": 1},
        {"policy_workers": 2, "batch": 2, "buffers": 2},
        {"env_kwargs": {"max_length": 3}, "overlap": 6},
    ],
    ids=str,
)
def test_serial(changes):
    run(replace(SMALL, **changes), 1000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"overlap": 6, "policy_workers": 2},
        {"overlap": 9, "policy_workers": 3},
        {"overlap": 15, "groups": 1},
        {"overlap": 3, "policy_workers": 0},
        {"sync": True, "policy_workers": 2},
        {"batch": 8, "buffers": 2, "groups": 4, "overlap": 11},
    ],
    ids=str,
)
def test_many_steps_in_processes(changes):
    config = replace(LARGE, **changes)
    run(config, 200_000 * (config.rollout - config.overlap) // config.rollout)


def test_history_unrolls_as_it_steps():
    model, rng = History(), np.random.default_rng(0)
    obs = torch.from_numpy(rng.integers(0, 9, (3, 6, 4)))
    first = torch.from_numpy(rng.random((3, 6)) < 0.3)
    outputs, state = model.unroll(obs, model.initial_state(3), first)
    assert outputs["logits"].shape == (3, 6, ACTIONS)
    assert state.shape == (3, 2)
