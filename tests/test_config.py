from __future__ import annotations

from dataclasses import fields, replace

import gymnasium as gym
import hypothesis.strategies as st
import numpy as np
import pytest
from helpers.counting import CounterChecker
from hypothesis import given, settings

from sampler import ConfigError, Sampler, SamplerConfig

BASE = SamplerConfig(env="fastrl/Counter-v0", inference="random")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": 3}, "env=3 is neither an id nor a callable"),
        ({"workers": 0}, "workers=0 must be a whole number of at least 1"),
        ({"workers": 2.0}, "workers=2.0 must be a whole number of at least 1"),
        ({"workers": True}, "workers=True must be a whole number of at least 1"),
        ({"rollout": -1}, "rollout=-1 must be a whole number of at least 1"),
        ({"batch": "32"}, "batch='32' must be a whole number of at least 1"),
        ({"seed": -1}, "seed=-1 must be a whole number of at least 0"),
        ({"max_restarts": -1}, "max_restarts=-1 must be a whole number of at least 0"),
        (
            {"buffers": 1},
            "buffers=1 must be a whole number of at least 2: one is learned while one is filled",
        ),
        (
            {"overlap": 32},
            "overlap=32 must be smaller than rollout=32: a row needs at least one new step",
        ),
        (
            {"envs_per_worker": 8, "groups": 3},
            "envs_per_worker=8 is not a multiple of groups=3; use 9 environments",
        ),
        (
            {"batch": 30},
            "batch=30 is not a multiple of the 4 lanes in a group; use 28 or 32, or change "
            "envs_per_worker or groups",
        ),
        (
            {"batch": 2},
            "batch=2 is not a multiple of the 4 lanes in a group; use 4, or change "
            "envs_per_worker or groups",
        ),
        ({"policy_workers": -1}, "policy_workers=-1 must be a whole number of at least 0"),
        (
            {"overlap": 3, "sync": True},
            "overlap=3 does not go with sync=True: the steps that a row repeats were made with "
            "older weights; leave one of them out",
        ),
        (
            {"straggler_timeout": 2.0, "serial": True},
            "straggler_timeout=2.0 does not go with serial=True: nothing runs beside anything "
            "else; leave one of them out",
        ),
        (
            {"policy_workers": 3},
            "policy_workers=3 exceeds workers=2: some would have nothing to do",
        ),
        (
            {"inference": "none"},
            "inference='none' is not one of model, random",
        ),
        ({"precision": "fp8"}, "precision='fp8' is not one of auto, float32, bfloat16"),
        ({"start_method": "fork"}, "start_method='fork' is not one of forkserver, spawn"),
        (
            {"straggler_timeout": 0},
            "straggler_timeout=0 must be a number of seconds greater than 0",
        ),
        (
            {"step_timeout": float("nan")},
            "step_timeout=nan must be a number of seconds greater than 0",
        ),
        ({"start_timeout": None}, "start_timeout=None must be a number of seconds greater than 0"),
        ({"step_timeout": "3"}, "step_timeout='3' must be a number of seconds greater than 0"),
        ({"sync": "yes"}, "sync='yes' must be True or False"),
        ({"env_kwargs": None}, "env_kwargs=None must be a dict with names as keys"),
        ({"env_kwargs": {3: 4}}, "env_kwargs={3: 4} must be a dict with names as keys"),
        ({"device": 0}, "device=0 must be a string: auto, cpu, cuda or cuda:N"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_settings_that_cannot_work(changes, message):
    with pytest.raises(ConfigError) as caught:
        replace(BASE, **changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "fastrl/Countr-v0"}, "did you mean .*fastrl/Counter-v0"),
        ({"env_kwargs": {"colour": 1}}, "colour"),
        ({"workers": 10**9}, "1000000001 worker processes need .* open files but the limit is"),
        ({"rollout": 10**12}, "shared memory of .* MiB refused .*; lower buffers=3, batch=32"),
        ({"envs_per_worker": 2 * 10**9, "batch": 10**9}, "shared memory of .* MiB refused"),
        ({"inference": "model", "device": "tpu"}, "device='tpu' is not auto, cpu, cuda or cuda:N"),
        ({"inference": "model", "device": "cuda:99"}, r"device='cuda:99' is not there"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_settings_that_this_machine_refuses(changes, message):
    from sampler import EnvError

    with pytest.raises((ConfigError, EnvError), match=message) as caught:
        Sampler(replace(BASE, **changes))
    assert "\n" not in str(caught.value)


def test_whole_numbers_of_numpy_are_fine():
    config = replace(BASE, workers=np.int64(3), seed=np.uint8(7), step_timeout=np.float32(2.5))
    assert config.lanes == 24


def test_derived_sizes():
    config = replace(BASE, workers=3, envs_per_worker=4, groups=2, batch=6)
    assert (config.lanes, config.lane_groups, config.lanes_per_group) == (12, 2, 2)
    assert config.batch_buffers == 4  # 12 lanes fill 2 batches, and 2 may wait
    assert replace(config, buffers=7).batch_buffers == 7
    assert replace(BASE, envs_per_worker=1, batch=1).lane_groups == 1


def refusal(changes):
    """The message that these settings are refused with, or "" if they are accepted."""
    try:
        replace(BASE, **changes)
    except ConfigError as error:
        return one_line(error)
    return ""


def one_line(error):
    assert "\n" not in str(error)
    return str(error)


ODD_VALUES = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([None, True, False, 0.0, 1.5, float("nan"), float("inf"), -1.0, 10**30]),
    st.sampled_from(["", "model", "cuda", "fork", "8", b"x", (), [], {}, {"a": 1}, object()]),
    st.sampled_from([np.int32(4), np.float64(2), np.bool_(True), np.zeros(3), np.nan]),
)
NAMES = [field.name for field in fields(SamplerConfig)]


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), ODD_VALUES, min_size=1, max_size=3))
def test_any_value_is_accepted_or_refused_in_one_line(changes):
    message = refusal(changes)
    assert not message or any(name in message for name in NAMES)


@settings(max_examples=25, deadline=None)
@given(
    changes=st.fixed_dictionaries(
        {
            "workers": st.integers(1, 4),
            "envs_per_worker": st.integers(1, 6),
            "groups": st.integers(1, 4),
            "rollout": st.integers(1, 6),
            "batch": st.integers(1, 12),
            "buffers": st.one_of(st.none(), st.integers(2, 4)),
            "overlap": st.integers(0, 5),
            "policy_workers": st.integers(0, 3),
            "sync": st.booleans(),
            "seed": st.integers(0, 2**64),
            "env_kwargs": st.fixed_dictionaries({"max_length": st.integers(1, 9)}),
        }
    )
)
def test_every_combination_works_or_is_refused(changes):
    """No lane starves and nothing is lost, whatever the numbers of everything."""
    if refusal(changes):
        return
    config = replace(BASE, serial=True, **changes)
    with Sampler(config) as sampler:
        checker = CounterChecker(sampler)
        rounds = 2 * config.batch_buffers + 2 * config.lanes // config.batch
        for _ in range(rounds):
            checker.add(sampler.get_batch())
        checker.drain()
        checker.check(drained=True)
        assert len(checker.rows) == config.lanes
        assert min(len(rows) for rows in checker.rows.values()) >= 2


def test_an_environment_instead_of_a_way_to_make_one_is_refused_with_the_remedy():
    env = gym.make("CartPole-v1")
    with pytest.raises(ConfigError, match=r"neither an id .* env=lambda: gymnasium\.make"):
        SamplerConfig(env=env)
