"""Flat transitions of batches, against a loop over the streams of their lanes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from helpers.samplers import SERIAL

from sampler import Sampler, SamplerConfig
from sampler.errors import ConfigError
from sampler.learner.replay import transitions

GAMMA = 0.9


def streams(batches, overlap):
    """lane -> its steps one after the other, each (obs, action, reward, terminated, truncated,
    real, next_obs), without those that rows repeat."""
    found = defaultdict(list)
    for batch in batches:
        obs = np.asarray(batch.obs)
        for row, lane in enumerate(batch.lane_id):
            begun = overlap if found[lane] else 0
            for t in range(begun, batch.mask.shape[1]):
                fields = [f[row, t] for f in (batch.rewards, batch.terminated, batch.truncated)]
                found[lane].append(
                    (
                        obs[row, t],
                        batch.actions[row, t],
                        *fields,
                        batch.mask[row, t],
                        obs[row, t + 1],
                    )
                )
    return found


def by_hand(stream, start, n, end):
    """(obs, action, return, discount, next_obs, terminated, truncated, k) of one start."""
    total, discount = 0.0, 1.0
    for k in range(n):
        if start + k == end:
            break
        _, _, reward, terminated, truncated, real, _ = stream[start + k]
        assert real
        total += discount * float(reward)
        discount *= GAMMA * (not terminated)
        if terminated or truncated:
            k += 1
            break
    else:
        k = n
    last = stream[start + k - 1]
    cut = bool(last[4]) and not last[3]
    return (*stream[start][:2], total, discount, last[6], bool(last[3]), cut, k)


@pytest.mark.parametrize(("n", "overlap"), [(1, 0), (1, 2), (3, 2), (3, 4), (4, 0)])
def test_every_step_of_a_lane_starts_one_transition(n, overlap):
    config = replace(SERIAL, overlap=overlap)
    with Sampler(config) as sampler:
        batches = [sampler.get_batch().copy() for _ in range(8)]
    lanes = streams(batches, overlap)
    places = dict.fromkeys(lanes, 0)  # where each lane's next row begins in its stream
    seen = 0
    for batch in batches:
        flat = transitions(batch, n, GAMMA)
        i = 0
        for row, lane in enumerate(batch.lane_id):
            stream, place = lanes[lane], places[lane]
            for t in range(config.rollout - overlap):
                if not stream[place + t][5]:
                    continue
                expected = by_hand(stream, place + t, n, place + config.rollout)
                found = [part[i] for part in flat[:8]]
                for one, other in zip(found, expected, strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-6)
                assert (flat.rows[i], flat.steps[i]) == (row, t)
                i += 1
            places[lane] += config.rollout - overlap
        assert i == len(flat.rewards)
        seen += i
        assert flat.terminated.any()
        assert flat.truncated.any()
    assert seen > 200


def test_stacks_masks_and_nested_spaces_are_picked_like_the_batch_shows_them():
    config = replace(SERIAL, env_kwargs={"max_length": 12, "frames": True})
    with Sampler(config) as sampler:
        for batch, _ in zip(sampler, range(2), strict=False):
            flat, obs = transitions(batch, 2), batch.obs
            np.testing.assert_array_equal(flat.obs, obs[flat.rows, flat.steps])
            at = flat.steps + flat.lengths
            np.testing.assert_array_equal(flat.next_obs, obs[flat.rows, at])
            assert flat.obs.shape[1] == 4
            assert flat.action_mask is None
            tensors = transitions(batch.to("cpu"), 2)
            np.testing.assert_array_equal(tensors.next_obs, flat.next_obs)
            assert not np.shares_memory(flat.actions, batch.actions)


class Nested(gym.Env):
    observation_space = gym.spaces.Dict(
        {"at": gym.spaces.Box(0, 9, (1,)), "action_mask": gym.spaces.MultiBinary(3)}
    )
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.seen(), {}

    def step(self, action):
        self.at += 1
        return self.seen(), 1.0, self.at == 5, False, {}

    def seen(self):
        allowed = np.array([1, self.at % 2, 0], np.int8)
        return {"at": np.array([self.at], np.float32), "action_mask": allowed}


def test_masks_and_dicts_come_along():
    config = SamplerConfig(
        env=Nested,
        workers=1,
        envs_per_worker=2,
        batch=2,
        rollout=8,
        serial=True,
        inference="random",
    )
    with Sampler(config) as sampler:
        batch = sampler.get_batch()
        flat = transitions(batch, 3, GAMMA)
        allowed = batch.action_mask
        np.testing.assert_array_equal(flat.action_mask, allowed[flat.rows, flat.steps])
        at = flat.obs["at"][:, 0]
        later = np.minimum(at + 3, 5)
        inside = flat.steps + flat.lengths < config.rollout
        np.testing.assert_array_equal(flat.next_obs["at"][inside, 0], later[inside])
        assert flat.next_action_mask.shape == flat.action_mask.shape
        expected = GAMMA**flat.lengths * ~flat.terminated
        np.testing.assert_allclose(flat.discounts, expected, rtol=1e-6)


@pytest.mark.parametrize("wrong", [{"n": 0}, {"gamma": 1.5}])
def test_wrong_numbers_are_refused(wrong):
    with Sampler(SERIAL) as sampler, pytest.raises(ConfigError, match="must be"):
        transitions(sampler.get_batch(), **wrong)
