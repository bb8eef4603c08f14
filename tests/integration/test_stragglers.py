"""A lane that is late holds up nobody, except a batch that waits for its row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.counting import CounterChecker
from helpers.gated import GatedCounter
from helpers.processes import PATIENCE, wait_until

from sampler import Sampler, SamplerConfig, seeds
from sampler.shm.tokens import ABANDONED

CONFIG = SamplerConfig(
    env=GatedCounter,
    workers=3,
    envs_per_worker=4,
    groups=2,
    rollout=8,
    batch=12,
    inference="random",
)
SLOW_LANE = 5


@pytest.fixture
def gate(tmp_path):
    """The file that lets the slow lane go on; it always can in the end."""
    path = tmp_path / "open"
    yield path
    path.touch()


def config_with(gate, **changes):
    slow_seed = seeds.integer(CONFIG.seed, seeds.LANE, SLOW_LANE, 0)
    kwargs = {"gate": str(gate), "slow_seed": slow_seed, "max_length": 12}
    return replace(CONFIG, env_kwargs=kwargs, **changes)


@pytest.mark.parametrize(("overlap", "sync"), [(0, False), (5, False), (0, True)])
def test_late_rows_are_given_up_masked_and_counted(gate, overlap, sync):
    config = config_with(gate, straggler_timeout=0.02, overlap=overlap, sync=sync)
    with Sampler(config) as sampler:
        checker = CounterChecker(sampler, gaps=True)
        batches = 0
        while batches < 12 or not sampler.stats()["abandoned_rows"]:  # far more than buffers
            checker.add(sampler.get_batch(timeout=PATIENCE))
            batches += 1
            assert sampler.stats()["restarts"] == 0
            assert batches < 100_000, "no row was given up"
        stats = sampler.stats()
        assert checker.given_up == stats["abandoned_rows"] > 0
        slow_group = range(4, 6)  # as the lane's worker steps it with one other
        rows = {checker.lane_of[seed]: len(rows) for seed, rows in checker.rows.items()}
        # The group of the slow lane stands still, others go on.
        assert all(rows.get(lane, 0) <= 1 for lane in slow_group)
        assert sum(rows.values()) == batches * config.batch - checker.given_up
        gate.touch()
        tokens = sampler._shared.tokens
        wait_until(
            lambda: checker.add(sampler.get_batch()) or (tokens.status != ABANDONED).all(),
            "the late writer",
        )
        for _ in range(12):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        checker.drain()
        checker.check()
        assert all(lane in {checker.lane_of[s] for s in checker.rows} for lane in slow_group)
        stats, counts = sampler.stats(), checker.counts
        # A row may begin with the end of one that was given up, and so bring back lost steps.
        brought_back = counts["steps"] + stats["lost_steps"] - stats["steps"]
        assert 0 <= brought_back <= overlap * stats["abandoned_rows"]
        assert stats["lost_steps"] > 0


def test_without_a_timeout_every_row_is_waited_for(gate):
    with Sampler(config_with(gate)) as sampler:
        checker = CounterChecker(sampler)
        # The slow lane's row is in the first batch; all others are filled meanwhile.
        tokens = sampler._shared.tokens
        wait_until(lambda: tokens.ticket.sum() and (tokens.ticket > 0).sum() == 4, "the others")
        before = sampler.stats()["steps"]
        assert before > 3 * CONFIG.lanes * CONFIG.rollout / 2
        gate.touch()
        for _ in range(10):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        checker.drain()
        checker.check(drained=True)
        assert sampler.stats()["abandoned_rows"] == 0


def test_debug_poison_does_not_disturb_a_late_writer(gate):
    config = config_with(gate, straggler_timeout=0.02, debug=True)
    with Sampler(config) as sampler:
        checker = CounterChecker(sampler, gaps=True)
        for _ in range(8):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        gate.touch()
        for _ in range(30):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        checker.drain()
        checker.check()
        assert SLOW_LANE in {checker.lane_of[seed] for seed in checker.rows}


def test_a_slow_reset_holds_up_nobody():
    """A lane whose resets wait costs the others nothing until a batch needs its row."""
    config = replace(
        CONFIG,
        env="fastrl/Sleep-v0",
        env_kwargs={"step_us": 0, "reset_s": 0.02, "length": 20},
        straggler_timeout=5.0,
    )
    with Sampler(config) as sampler:
        for _ in range(10):
            assert sampler.get_batch(timeout=PATIENCE).mask.any()
        assert sampler.stats()["abandoned_rows"] == 0
