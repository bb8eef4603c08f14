"""What is made of two snapshots of the statistics."""

from __future__ import annotations

import pytest

from perf.measure.speeds import mean_shares, rates, stage_shares


def snapshot(time, steps, seconds, batches, observations):
    """Statistics of one rollout and one policy worker, as Sampler.stats() gives them."""
    return {
        "time": time,
        "steps": steps,
        "frames": 4 * steps,
        "rollout": [{"seconds": dict(seconds)}],
        "policy": [
            {"batches": batches, "observations": observations, "seconds": {"wait": time / 2}}
        ],
        "learner": {"batches": batches // 2, "wait_seconds": 0.0},
    }


def test_rates_are_differences_over_time():
    before = snapshot(10.0, 100, {"step": 1.0, "wait": 2.0}, 20, 200)
    after = snapshot(14.0, 500, {"step": 3.0, "wait": 3.0}, 30, 320)
    assert rates(before, after) == {
        "sps": 100.0,
        "fps": 400.0,
        "policy_batch_mean": 12.0,
        "learner_batches": 5 / 4,
    }


def test_rates_without_inference_have_batches_of_nothing():
    still = snapshot(10.0, 100, {"step": 1.0}, 20, 200)
    assert rates(still, {**still, "time": 11.0})["policy_batch_mean"] == 0.0


def test_stage_shares_are_means_over_processes_and_add_up_to_one():
    def stats(time, *steps):
        return {
            "time": time,
            "rollout": [{"seconds": {"step": s, "wait": 0.5 * s}} for s in steps],
            "policy": [],
        }

    shares = stage_shares(stats(100.0, 1.0, 2.0), stats(110.0, 5.0, 4.0))
    # 4 and 2 seconds of stepping, half as many of waiting, of 2 processes in 10 seconds.
    assert shares == {"rollout": pytest.approx({"step": 0.3, "wait": 0.15, "other": 0.55})}


def test_a_wait_that_began_before_the_window_leaves_no_negative_rest():
    before = {"time": 0.0, "rollout": [{"seconds": {"wait": 0.0}}], "policy": []}
    after = {"time": 1.0, "rollout": [{"seconds": {"wait": 1.1}}], "policy": []}
    assert stage_shares(before, after)["rollout"]["other"] == 0.0


def test_mean_shares():
    shares = [{"policy": {"wait": 0.2, "other": 0.8}}, {"policy": {"wait": 0.4, "other": 0.6}}]
    assert mean_shares(shares) == {"policy": pytest.approx({"wait": 0.3, "other": 0.7})}
