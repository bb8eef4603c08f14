"""The arithmetic of predictions, on machines simple enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perf.plan import Costs, Plan, Settings, on_gpu, predict

SLOW_STEPS = Costs(step=400.0, sleep=0.0, batch=100.0, observation=1.0)
MACHINE = Plan(cores=64, workers=8, groups=2, lanes_per_group=4, policy_workers=1)


def test_slow_steps_hold_back():
    result = predict(SLOW_STEPS, MACHINE)
    assert result.bottleneck == "stepping"
    assert result.sps == pytest.approx(8 / 400e-6)
    # 104 us for a group's answer, 1,600 us to step the other group: nobody waits for an answer.
    assert result.bounds["answers"] == pytest.approx(result.sps)


def test_more_workers_help_until_inference_holds_back():
    costs = replace(SLOW_STEPS, observation=20.0)
    small = predict(costs, replace(MACHINE, workers=4))
    assert small.bottleneck == "stepping"
    large = predict(costs, replace(MACHINE, cores=512, workers=64))
    assert large.bottleneck == "inference"
    # All but one group of each worker wait: 64 x 4 observations in a batch.
    assert large.observations == pytest.approx(256)
    assert large.sps == pytest.approx(256 / (100e-6 + 256 * 20e-6))


def test_policy_workers_share_the_inference():
    costs = replace(SLOW_STEPS, observation=20.0)
    plan = replace(MACHINE, cores=512, workers=64)
    one, two = predict(costs, plan), predict(costs, replace(plan, policy_workers=2))
    assert two.bounds["inference"] == pytest.approx(2 * 128 / (100e-6 + 128 * 20e-6))
    assert two.bounds["inference"] > one.bounds["inference"]


def test_too_few_cores_hold_back():
    result = predict(SLOW_STEPS, replace(MACHINE, cores=2))
    assert result.bottleneck == "cores"
    # A lane-step takes 400 us of a rollout worker, and its part of a batch of 8 x 4.
    assert result.sps == pytest.approx(2 / (400e-6 + (100e-6 + 32e-6) / 32))


def test_sleep_takes_time_but_no_core():
    asleep = Costs(step=10.0, sleep=390.0, batch=100.0, observation=1.0)
    result = predict(asleep, replace(MACHINE, cores=2))
    assert result.bottleneck == "stepping"
    assert result.sps == pytest.approx(8 / 400e-6)


def test_one_group_waits_for_every_answer():
    plan = replace(MACHINE, workers=1)
    one = predict(SLOW_STEPS, replace(plan, groups=1, lanes_per_group=8))
    two = predict(SLOW_STEPS, plan)
    assert one.bottleneck == "answers"
    assert one.sps == pytest.approx(8 / (8 * 400e-6 + 1.5 * 108e-6))
    assert two.bottleneck == "stepping"


def test_answers_hold_two_groups_back_where_an_answer_takes_longer_than_a_group():
    # Stepping the other group takes 1,000 us, an answer one and a half times as long.
    slow = Costs(step=250.0, sleep=0.0, batch=1000.0, observation=0.0)
    result = predict(slow, replace(MACHINE, workers=1))
    assert result.bottleneck == "answers"
    assert result.sps == pytest.approx(8 / (1000e-6 + 1500e-6))


def test_a_single_worker_cannot_fill_the_batches_of_slow_inference():
    slow = Costs(step=10.0, sleep=0.0, batch=1000.0, observation=0.0)
    result = predict(slow, replace(MACHINE, workers=1))
    assert result.bottleneck == "inference"
    assert result.sps == pytest.approx(4 / 1000e-6)


def test_batches_hold_what_arrives_while_one_is_served():
    result = predict(SLOW_STEPS, replace(MACHINE, workers=32))
    rate = 32 / 400e-6
    assert result.observations == pytest.approx(
        rate * SLOW_STEPS.serving(result.observations) * 1e-6
    )


def test_gpu_adds_its_costs_to_gathering():
    settings = Settings(gpu_batch_us=500.0, gpu_observation_us=3.0)
    assert on_gpu(settings, SLOW_STEPS) == Costs(400.0, 0.0, 600.0, 4.0)
