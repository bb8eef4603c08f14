from __future__ import annotations

import pytest
from helpers.published import cases

from sampler.learner.functional.schedules import LinearSchedule


def test_published_numbers():
    (case,) = cases("nstep_transitions", only="linear_schedule")
    x = case["inputs"]
    schedule = LinearSchedule(x["begin_value"], x["end_value"], x["decay_steps"], x["begin_t"])
    result = [schedule(step) for step in x["steps"]]
    assert result == pytest.approx(case["expected"]["values"], rel=case["rtol"])


def test_rises_as_well():
    beta = LinearSchedule(0.4, 1.0, 10)
    assert [beta(0), beta(5), beta(10), beta(99)] == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_no_steps_is_a_jump():
    schedule = LinearSchedule(1.0, 0.0, 0, begin=3)
    assert [schedule(2), schedule(3), schedule(4)] == [1.0, 1.0, 0.0]
