from __future__ import annotations

import numpy as np
import pytest

from sampler.rollout_worker.vector_infos import (
    entry,
    final_entry,
    final_observation,
    has_final_observations,
)


def of_dicts(*values):
    array = np.full(len(values), None, object)
    array[:] = values
    return array


def test_an_entry_counts_only_where_its_mask_says_so():
    info = {"lives": np.array([3, 0]), "_lives": np.array([True, False]), "all": np.array([1, 2])}
    assert entry(info, "lives", 0) == 3
    assert entry(info, "lives", 1) is None
    assert entry(info, "lives", 1, -1) == -1
    assert [entry(info, "all", lane) for lane in range(2)] == [1, 2]
    assert entry(info, "none", 0, "default") == "default"


def test_an_entry_may_be_nested():
    info = {"episode": {"r": np.array([1.0, 2.0]), "_r": np.array([False, True])}}
    assert entry(info, "episode", 1) == {"r": 2.0, "_r": True}


@pytest.mark.parametrize(
    "final",
    [
        {"game_over": np.array([False, False]), "_game_over": np.array([False, True])},
        of_dicts(None, {"game_over": False}),
        of_dicts({}, {"game_over": False}),
    ],
)
def test_the_step_that_ended_an_episode_comes_before_the_reset(final):
    info = {"final_info": final, "_final_info": np.array([True, True])}
    info |= {"game_over": np.array([False, True])}  # of the reset
    assert final_entry(info, "game_over", 0, True) is True
    assert not final_entry(info, "game_over", 1, True)
    assert final_entry({"game_over": np.array([True, False])}, "game_over", 0)


@pytest.mark.parametrize("key", ["final_obs", "final_observation"])
def test_final_observations_by_either_name(key):
    ended = np.array([False, True])
    for given in (of_dicts(None, np.ones(2)), np.ones((2, 2))):
        info = {key: given, f"_{key}": ended}
        assert final_observation(info, 0) is None
        assert final_observation(info, 1).tolist() == [1, 1]
        assert has_final_observations(info, ended)
    assert not has_final_observations({}, ended)
    nested = {key: {"a": np.array([1, 2])}, f"_{key}": ended}
    assert final_observation(nested, 1) == {"a": 2}
