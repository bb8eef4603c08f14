"""Action masks from environments: where they come from, and what is wrong with some."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.failures import SERIAL, sample
from helpers.faults import BOX, GOOD, Faulty

from sampler import EnvError, Sampler
from sampler.evaluation import evaluate
from sampler.models import make_model


class Masked(Faulty):
    def __init__(self, mask):
        super().__init__(info=lambda t: {"action_mask": mask(t)} if mask(t) is not None else {})


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (lambda t: None if t == 3 else [1, 0, 1], "no action_mask in this step's info, though"),
        (lambda t: [1, 0, 1, 1][: 3 + (t == 3)], "the action mask has 4 entries, but Discrete"),
        (lambda t: [t != 3] * 3, "the action mask permits no action"),
    ],
)
def test_action_masks_that_are_wrong(mask, message):
    with pytest.raises(EnvError, match=message):
        sample(replace(SERIAL, env=lambda: Masked(mask)))


def test_masked_actions_are_never_taken():
    with Sampler(replace(SERIAL, env=lambda: Masked(lambda t: [1, 0, t % 2]))) as sampler:
        for _ in range(5):
            batch = sampler.get_batch()
            chosen = np.take_along_axis(batch.action_mask[:, :-1], batch.actions[..., None], 2)
            assert chosen.all()
            np.testing.assert_allclose(
                batch.log_probs, -np.log(batch.action_mask[:, :-1].sum(-1)), rtol=1e-6
            )


@pytest.mark.parametrize("last", [None, [0, 0, 0], [0, 1, 0]])
@pytest.mark.parametrize("vector", [False, True])
def test_no_action_follows_the_last_observation(last, vector):
    """Board games permit none there; a mask that permits some is kept."""

    def env():
        return Masked(lambda t: last if t == 6 else [1, 0, 1])

    with Sampler(replace(SERIAL, env=vector_of(env) if vector else env)) as sampler:
        for _ in range(3):
            batch = sampler.get_batch()
            ends = np.argwhere(batch.terminated)
            for row, t in ends:
                mask = batch.action_mask[row, t + 1]
                assert mask.tolist() == ([False, True, False] if last == [0, 1, 0] else [True] * 3)
            assert len(ends)
    games = evaluate(make_model, vector_of(env) if vector else env, episodes=2, lanes=2)
    assert games.lengths.tolist() == [6, 6]


NESTED = spaces.Dict(
    {"a": spaces.Discrete(3), "b": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2)))}
)
NESTED_MASK = {"a": np.int8([0, 1, 1]), "b": (np.int8([1, 0]), np.int8([0, 1]))}


class InObservation(Faulty):
    """Shows its nested mask in its observation."""

    def __init__(self):
        mask = spaces.Dict(
            {
                "a": spaces.MultiBinary(3),
                "b": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiBinary(2))),
            }
        )
        super().__init__(
            observe=lambda t: {"x": GOOD, "action_mask": NESTED_MASK},
            space=spaces.Dict({"x": BOX, "action_mask": mask}),
            action_space=NESTED,
        )


class InInfo(Faulty):
    """Gives its nested mask in its info."""

    def __init__(self):
        super().__init__(info=lambda t: {"action_mask": NESTED_MASK}, action_space=NESTED)


@pytest.mark.parametrize("env", [InObservation, InInfo])
@pytest.mark.parametrize("vector", [False, True])
def test_nested_masks(env, vector):
    with Sampler(replace(SERIAL, env=vector_of(env) if vector else env)) as sampler:
        batch = sampler.get_batch()
        assert (batch.action_mask == [0, 1, 1, 1, 0, 0, 1]).all()
        assert (batch.actions["a"] > 0).all()
        assert not batch.actions["b"][0].any()
        assert not batch.actions["b"][1][..., 0].any()


def vector_of(env):
    return lambda: gym.vector.SyncVectorEnv([env] * 2)
