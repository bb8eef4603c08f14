from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from sampler.rollout_worker.values import Fault, ValueCheck
from sampler.spaces import leaves

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
REWARDS = np.zeros((3, 4), np.float32)


def check_of(space):
    return ValueCheck(leaves(space, "obs"), "Climber-v0")


def test_what_the_spaces_allow_is_no_fault(caplog):
    space = spaces.Dict({"a": BOX, "b": spaces.Discrete(3, start=1)})
    observations = [np.ones((3, 5, 2), np.float32), np.full((3, 5), 3)]
    assert check_of(space).fault(REWARDS, observations, 0) is None
    assert caplog.records == []


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf])
def test_rewards_must_be_finite(reward):
    rewards = REWARDS.copy()
    rewards[1, 2] = reward
    fault = check_of(BOX).fault(rewards, [np.zeros((3, 5, 2), np.float32)], 0)
    assert fault == Fault(
        1,
        2,
        f"reward {reward}",
        "rewards must be finite: correct or clip them in the environment",
    )


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (BOX, np.nan),
        (BOX, np.inf),
        (spaces.Box(-np.inf, np.inf, (2,), np.float64), np.nan),
        (spaces.Box(-1, 1, (2,), np.int16), 2),
        (spaces.MultiDiscrete([3, 3]), 3),
        (spaces.MultiBinary(2), 2),
    ],
    ids=str,
)
def test_other_values_outside_the_space_are_faults(space, value, caplog):
    observations = np.zeros((3, 5, 2), space.dtype)
    observations[2, 4, 1] = value
    fault = check_of(space).fault(REWARDS, [observations], 0)
    assert (fault.lane, fault.step) == (2, 4)
    assert (
        fault.what == f"obs holds {observations[2, 4, 1]} at index (1,), outside its space {space}"
    )
    assert fault.remedy == "correct the environment, or its observation_space"
    assert caplog.records == []


def test_a_finite_float_outside_its_box_is_warned_of_once(caplog):
    check = check_of(spaces.Dict({"height": BOX}))
    observations = np.zeros((3, 5, 2), np.float32)
    observations[1, 3, 0] = 1.25
    for _ in range(2):
        assert check.fault(REWARDS, [observations], first_lane=16) is None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(
        f"env Climber-v0, lane 17: obs.height holds 1.25 at index (0,), outside its space {BOX}; "
    )


def test_such_a_float_hides_no_fault_behind_it():
    observations = np.zeros((3, 5, 2), np.float32)
    observations[0, 0, 0] = 1.25
    observations[2, 1, 1] = np.nan
    check = check_of(BOX)
    for _ in range(2):
        fault = check.fault(REWARDS, [observations], 0)
        assert (fault.lane, fault.step) == (2, 1)
        assert fault.what.startswith("obs holds nan at index (1,)")


def test_infinity_within_an_open_box_is_no_fault_beside_a_float_outside():
    space = spaces.Box(np.float32([-1, -np.inf]), np.float32([1, np.inf]))
    observations = np.zeros((3, 5, 2), np.float32)
    observations[0, 0] = [2.0, np.inf]
    assert check_of(space).fault(REWARDS, [observations], 0) is None
