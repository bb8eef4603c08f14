from __future__ import annotations

import pytest

from cli.rates import percentages, rates


def snapshot(time, steps, workers, waited=0.0):
    return {
        "time": time,
        "steps": steps,
        "frames": 4 * steps,
        "rollout": [
            {"seconds": dict(zip(("step", "wait", "token_wait"), worker, strict=True))}
            for worker in workers
        ],
        "policy": [],
        "learner": {"wait_seconds": waited},
    }


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        ((8.0, 1.0, 0.5), "environment"),
        ((2.0, 7.0, 0.5), "inference"),
        ((1.0, 2.0, 6.5), "learner"),
        ((0.0, 0.0, 0.0), "unknown"),
    ],
)
def test_bottleneck_is_where_rollout_workers_spend_their_time(worker, expected):
    before = snapshot(100.0, 0, [(0, 0, 0), (0, 0, 0)])
    after = snapshot(110.0, 1000, [worker, worker], waited=4.0)
    assert rates(before, after).bottleneck == expected


def test_speeds_and_shares_are_differences():
    before = snapshot(100.0, 500, [(1, 1, 1)], waited=2.0)
    after = snapshot(110.0, 1500, [(6, 3, 2)], waited=5.0)
    result = rates(before, after)
    assert result.sps == pytest.approx(100.0)
    assert result.fps == pytest.approx(400.0)
    assert result.steps == 1000
    assert result.learner_wait == pytest.approx(0.3)
    assert dict(result.shares) == pytest.approx(
        {"environment": 0.5, "inference": 0.2, "learner": 0.1}
    )


def test_in_one_process_the_learner_has_what_the_others_leave():
    before = snapshot(0.0, 0, [(0, 0, 0), (0, 0, 0)])
    after = snapshot(10.0, 100, [(2, 0, 0), (1, 0, 0)], waited=6.0)
    before["policy"] = [{"seconds": {"wait": 0.0}}]
    after["policy"] = [{"seconds": {"wait": 9.0, "gather": 0.5, "inference": 1.5, "write": 0.25}}]
    result = rates(before, after, serial=True)
    assert dict(result.shares) == pytest.approx(
        {"environment": 0.3, "inference": 0.225, "learner": 0.4}
    )
    assert result.bottleneck == "learner"
    assert result.communication == pytest.approx(0.75 / 2.25)


def test_workers_that_choose_their_own_actions_spend_their_own_time_on_it():
    before = snapshot(0.0, 0, [(0, 0, 0), (0, 0, 0)])
    after = snapshot(10.0, 100, [(2, 0, 1), (2, 0, 1)])
    before["policy"] = [{"seconds": {}}, {"seconds": {}}]
    after["policy"] = [{"seconds": {"inference": 6.0}}, {"seconds": {"inference": 5.0}}]
    result = rates(before, after, local=True)
    assert dict(result.shares) == pytest.approx(
        {"environment": 0.2, "inference": 0.55, "learner": 0.1}
    )


def test_a_wait_that_began_before_the_window_is_no_share_above_one():
    before = snapshot(100.0, 500, [(1, 1, 1)])
    after = snapshot(102.0, 600, [(2, 16, 1)])
    result = rates(before, after)
    assert sum(result.shares.values()) == pytest.approx(1.0)
    assert result.bottleneck == "inference"


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((1 / 3, 1 / 3, 1 / 3), [34, 33, 33]),
        ((0.03, 0.14, 0.83), [3, 14, 83]),
        ((0.1, 0.8, 0.0), [10, 80, 0, 10]),
        ((0.0, 0.0, 0.0), [0, 0, 0, 100]),
    ],
)
def test_percentages_add_up_to_100(shares, expected):
    shown = percentages(dict(zip(("environment", "inference", "learner"), shares, strict=True)))
    assert sorted(shown.values()) == sorted(expected)
    assert sum(shown.values()) == 100
    assert ("other" in shown) == (len(expected) == 4)


def test_equal_snapshots_do_not_divide_by_zero():
    same = snapshot(1.0, 5, [(1, 1, 1)])
    assert rates(same, same).sps == 0.0
