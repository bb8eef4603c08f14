"""A lane that is late holds up nobody, except a batch that waits for its row."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from helpers.counting import CounterChecker
from helpers.gated import GatedCounter, reached
from helpers.inspection import has_given_up
from helpers.processes import PATIENCE, wait_until

from sampler import Sampler, SamplerConfig, seeds
from sampler.shm.counters import Stage

CONFIG = SamplerConfig(
    env=GatedCounter,
    workers=3,
    envs_per_worker=4,
    groups=2,
    rollout=8,
    batch=12,
    inference="random",
)
# A row is given up when the learner has to wait. With more buffers a slow one never has to: others
# are full again before it comes back.
IMPATIENT = replace(CONFIG, straggler_timeout=0.02, buffers=2)
SLOW_LANE = 5
SLOW_GROUP = 2
LANES_OF_SLOW_GROUP = (4, 5)


@pytest.fixture
def gate(tmp_path):
    """The file that lets the slow lane go on; it always can in the end."""
    path = tmp_path / "open"
    yield path
    path.touch()


def with_slow_lane(config, gate, **changes):
    slow_seed = seeds.integer(CONFIG.seed, seeds.LANE, SLOW_LANE, 0)
    kwargs = {"gate": str(gate), "slow_seed": slow_seed, "max_length": 12}
    return replace(config, env_kwargs=kwargs, **changes)


@pytest.fixture
def stand_still(gate, caplog):
    """Takes batches until the slow lane stands still; returns how many.

    Where its worker is the last to start, the others have all rows by then, and it gets one only
    when a batch was taken. One whose worker is started again has another seed.
    """

    def wait(sampler, checker):
        taken = []

        def stands():
            assert sampler.stats()["restarts"] == 0, caplog.text
            if reached(gate).exists():
                return True
            with suppress(TimeoutError):
                taken.append(checker.add(sampler.get_batch(timeout=0.01)))
            return False

        wait_until(stands, "the slow lane")
        return len(taken)

    return wait


def delivered(checker):
    """The lanes of which there were rows."""
    return {checker.lane_of[seed] for seed in checker.rows}


def take_until_delivered(sampler, checker, lanes):
    """Take batches until there were rows of all these lanes."""

    def complete():
        checker.add(sampler.get_batch(timeout=PATIENCE))
        return delivered(checker) >= set(lanes)

    wait_until(complete, "the late writer")


@pytest.mark.parametrize(("overlap", "sync"), [(0, False), (5, False), (0, True)])
def test_late_rows_are_given_up_masked_and_counted(gate, stand_still, overlap, sync):
    config = with_slow_lane(IMPATIENT, gate, overlap=overlap, sync=sync)
    with Sampler(config) as sampler:
        checker = CounterChecker(sampler, gaps=True)
        batches = stand_still(sampler, checker)
        while batches < 12 or not has_given_up(sampler, SLOW_GROUP):
            checker.add(sampler.get_batch(timeout=PATIENCE))
            batches += 1
            assert batches < 100_000, "no row was given up"
        stats = sampler.stats()
        assert checker.given_up == stats["abandoned_rows"] > 0
        # The group of the slow lane stands still, others go on.
        assert not delivered(checker) & set(LANES_OF_SLOW_GROUP)
        rows = sum(len(rows) for rows in checker.rows.values())
        assert rows == batches * config.batch - checker.given_up
        gate.touch()
        take_until_delivered(sampler, checker, LANES_OF_SLOW_GROUP)
        for _ in range(12):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        checker.drain()
        checker.check()
        stats, counts = sampler.stats(), checker.counts
        # A row may begin with the end of one that was given up, and so bring back lost steps.
        brought_back = counts["steps"] + stats["lost_steps"] - stats["steps"]
        assert 0 <= brought_back <= overlap * stats["abandoned_rows"]
        assert stats["lost_steps"] > 0


def test_without_a_timeout_every_row_is_waited_for(gate, stand_still):
    with Sampler(with_slow_lane(CONFIG, gate)) as sampler:
        checker = CounterChecker(sampler)
        stand_still(sampler, checker)

        # A batch waits for the slow lane's row; all other rows are filled meanwhile.
        def others_wait():
            workers = sampler.stats()["rollout"]
            return all(workers[index]["stage"] == Stage.WAITING_FOR_ROWS for index in (0, 2))

        wait_until(others_wait, "the others")
        assert sampler.stats()["steps"] > 3 * CONFIG.lanes * CONFIG.rollout / 2
        gate.touch()
        for _ in range(10):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        checker.drain()
        checker.check(drained=True)
        assert sampler.stats()["abandoned_rows"] == 0


def test_debug_poison_does_not_disturb_a_late_writer(gate, stand_still):
    with Sampler(with_slow_lane(IMPATIENT, gate, debug=True)) as sampler:
        checker = CounterChecker(sampler, gaps=True)
        stand_still(sampler, checker)
        while not has_given_up(sampler, SLOW_GROUP):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        for _ in range(8):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        gate.touch()
        take_until_delivered(sampler, checker, [SLOW_LANE])
        for _ in range(30):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        checker.drain()
        checker.check()


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
