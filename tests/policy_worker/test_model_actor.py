"""Answers of a model to requests, and the recurrent states that rows begin with."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.states import through_a_file
from helpers.store import make_shared
from torch import nn

from sampler import EnvError, ModelError
from sampler.models import as_policy_model
from sampler.policy_worker.model_actor import ModelActor
from sampler.policy_worker.requests import Requests
from sampler.runtime.state_tensors import to_arrays, to_tensors
from sampler.shm.parameters import ParameterBlock
from sampler.shm.shared import Shared, Topology
from sampler.shm.weights import WeightStore

TOPOLOGY = Topology(2, 2, 2, 2)  # policy worker 1 serves groups 2 and 3: lanes 4 to 7
OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
ACTIONS = gym.spaces.Discrete(3, start=5)


class Linear(nn.Module):
    """Logits `scale * obs[0] * (0, 1, 2)`, value `obs[1]`."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, obs):
        return self.scale * obs[:, :1] * torch.arange(3.0), obs[:, 1]


class Counting(nn.Module):
    """Its state, [n, 1], counts the steps of an episode. Forbids no action, prefers none."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def initial_state(self, n):
        return torch.zeros(n, 1)

    def step(self, obs, state, is_first):
        return {"logits": torch.zeros(len(obs), 3), "values": state[:, 0]}, state + 1

    def unroll(self, obs, state, is_first):
        raise AssertionError("actors make single steps")


class Greedy(nn.Module):
    """Q-values that are always highest for the last action."""

    def __init__(self):
        super().__init__()
        self.q_values = nn.Parameter(torch.arange(3.0))

    def initial_state(self, n):
        return torch.zeros(n, 0)

    def step(self, obs, state, is_first):
        return {"q_values": self.q_values.expand(len(obs), 3)}, state

    unroll = step


def shared_for(model: nn.Module, **changes) -> Shared:
    outputs = {"log_probs": (), "logits": (3,), "values": ()}
    made = make_shared(TOPOLOGY, outputs=changes.pop("outputs", outputs), **changes)
    shared = Shared(made.spec, TOPOLOGY, ParameterBlock(model).nbytes, sync=False)
    made.close()
    return shared


def actor_for(model: nn.Module, shared: Shared, seed: int = 0) -> ModelActor:
    weights = WeightStore(shared.arena)
    spaces = OBSERVATIONS, ACTIONS
    device, precision = torch.device("cpu"), torch.float32
    return ModelActor(as_policy_model(model), shared, weights, 1, *spaces, device, precision, seed)


def publish(model: nn.Module, shared: Shared) -> int:
    weights, block = WeightStore(shared.arena), ParameterBlock(as_policy_model(model))
    block.copy(as_policy_model(model).state_dict(), block.views(weights.begin()))
    return weights.publish()


def requests_of(positions, steps, rows=None) -> Requests:
    """Of groups of two lanes each, by their positions; the rows they write do not matter here."""
    positions, steps = np.array(positions), np.array(steps)
    rows = np.zeros_like(steps) if rows is None else np.array(rows)
    lanes = (positions[:, None] * 2 + np.arange(2)).ravel()
    return Requests(positions, np.ones_like(steps), steps, rows, lanes, lanes)


def inputs_of(count: int, age: int = 0, obs: float = 0.0) -> dict[str, np.ndarray]:
    """What `count` lanes see, all the same."""
    return {"obs": np.full((count, 2), obs, np.float32), "age": np.full(count, age, np.int32)}


def test_every_field_of_the_transitions_is_answered():
    model = Linear()
    actor = actor_for(model, shared_for(model))
    assert actor.inputs == ["obs", "age"]
    inputs = inputs_of(4)
    inputs["obs"][:] = [[100.0, 1.0], [-100.0, 2.0], [0.0, 3.0], [0.0, 4.0]]
    fields, beginnings = actor.act(requests_of([0, 1], [0, 0]), inputs)
    assert set(fields) == {"actions", "logits", "values", "log_probs"}
    assert beginnings is None
    assert fields["actions"][:2].tolist() == [7, 5]  # in the space's own numbers
    assert fields["values"].tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(fields["logits"][0], [0, 100, 200])
    np.testing.assert_allclose(fields["log_probs"], [0, 0, -np.log(3), -np.log(3)], atol=1e-6)


def test_the_newest_published_weights_are_loaded():
    model = Linear()
    shared = shared_for(model)
    actor = actor_for(Linear(), shared)
    for scale in (2.0, 3.0):
        nn.init.constant_(model.scale, scale)
        publish(model, shared)
    assert actor.load(-1) == 1
    fields, _ = actor.act(requests_of([0], [0]), inputs_of(2, obs=1.0))
    np.testing.assert_array_equal(fields["logits"], [[0, 3, 6]] * 2)


def test_an_output_that_is_nan_names_the_lane_and_the_version():
    model = Linear()
    shared = shared_for(model)
    nn.init.constant_(model.scale, np.nan)
    publish(model, shared)
    actor = actor_for(Linear(), shared)
    actor.load(-1)
    message = (
        "lane 6: the model's output 'logits' is NaN (weights of version 0); publish finite weights,"
    )
    with pytest.raises(ModelError, match=re.escape(message)):
        actor.act(requests_of([1], [0]), inputs_of(2))


def test_an_observation_that_is_not_finite_is_the_fault_of_the_environment():
    model = Linear()
    actor = actor_for(model, shared_for(model))
    inputs = inputs_of(4)
    inputs["obs"][3] = np.nan
    with pytest.raises(EnvError, match=r"^lane 7: the environment's obs is not finite"):
        actor.act(requests_of([0, 1], [0, 0]), inputs)


def test_each_lane_explores_as_much_as_its_own_epsilon_says():
    model = Greedy()
    shared = shared_for(model, outputs={"log_probs": (), "q_values": (3,)})
    shared.epsilon[:] = [1, 1, 1, 1, 0, 1, 0, 1]
    actor = actor_for(model, shared)
    drawn = [actor.act(requests_of([1, 0], [0, 0]), inputs_of(4))[0]["actions"] for _ in range(200)]
    lanes = dict(zip([6, 7, 4, 5], np.transpose(drawn), strict=True))
    for lane in (4, 6):
        assert set(lanes[lane].tolist()) == {7}
    for lane in (5, 7):
        assert set(lanes[lane].tolist()) == {5, 6, 7}


# ---- recurrent state


@pytest.fixture
def counting():
    """Makes an actor of `Counting` for rows of 4 steps."""

    def make(overlap=0, seed=0):
        model = Counting()
        return actor_for(model, shared_for(model, state_shape=(1,), overlap=overlap), seed)

    return make


def test_states_belong_to_lanes_and_are_zero_where_an_episode_begins(counting):
    actor = counting()
    actor.act(requests_of([0, 1], [0, 0]), inputs_of(4))
    actor.act(requests_of([1], [1]), inputs_of(2, age=1))
    inputs = inputs_of(4, age=9)
    inputs["age"][1] = 0
    fields, _ = actor.act(requests_of([1, 0], [2, 1]), inputs)
    assert fields["values"].tolist() == [2, 0, 1, 1]


def test_a_row_begins_with_the_state_before_its_first_step(counting):
    actor = counting()
    found = []
    for row, step in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]:
        _, beginnings = actor.act(requests_of([1], [step], [row]), inputs_of(2, age=row + step))
        if beginnings is not None:
            positions, states = beginnings
            assert positions.tolist() == [0, 1]
            found.append(((row, step), states.ravel().tolist()))
    assert found == [((0, 0), [0, 0]), ((1, 0), [4, 4])]


@pytest.mark.parametrize("overlap", [1, 2, 3])
def test_rows_that_overlap_begin_with_a_state_met_in_the_row_before(counting, overlap):
    """It is given at a row's first step that is not a repeated one."""
    actor, stride = counting(overlap), 4 - overlap
    steps = [(0, step) for step in range(4)]
    steps += [(row, step) for row in range(1, 6) for step in range(overlap, 4)]
    for time, (row, step) in enumerate(steps):
        requests = requests_of([0], [step], [row])
        _, beginnings = actor.act(requests, inputs_of(2, age=time))
        begins = step == (overlap if row else 0)
        assert (beginnings is not None) == begins
        if beginnings is not None:
            assert beginnings[1].ravel().tolist() == [row * stride] * 2


def test_only_the_lanes_whose_rows_begin_have_beginnings(counting):
    actor = counting()
    positions, states = actor.act(requests_of([0, 1], [2, 0]), inputs_of(4))[1]
    assert positions.tolist() == [2, 3]
    assert states.shape == (2, 1)


def test_a_group_is_known_from_its_first_row_on(counting):
    """An actor that was started again knows the states of none that are further."""
    actor = counting()
    later = requests_of([0, 1], [2, 0], [0, 3])
    assert actor.knows(later).tolist() == [False, False]
    actor.begin(requests_of([1], [0]))
    assert actor.knows(later).tolist() == [False, True]
    actor.begin(later)
    assert actor.knows(later).tolist() == [False, True]


def test_masks_and_previous_actions_are_asked_for_where_there_are_any():
    model = Linear()
    actor = actor_for(model, shared_for(model, action_mask_size=3, previous=True))
    names = ["obs", "age", "action_mask", "previous_actions", "previous_rewards"]
    assert actor.inputs == names
    inputs = inputs_of(2, obs=1.0) | {
        "action_mask": np.array([[True, False, False], [False, True, False]]),
        "previous_actions": np.array([5, 6]),
        "previous_rewards": np.zeros(2, np.float32),
    }
    fields, _ = actor.act(requests_of([0], [0]), inputs)
    assert fields["actions"].tolist() == [5, 6]  # the only ones that are allowed
    np.testing.assert_allclose(fields["log_probs"], 0.0, atol=1e-6)


def test_a_model_without_state_knows_everybody():
    model = Linear()
    actor = actor_for(model, shared_for(model))
    assert actor.knows(requests_of([0, 1], [2, 3])).tolist() == [True, True]


def test_the_same_actions_follow_from_a_saved_state(counting):
    actor, other = counting(overlap=2), counting(overlap=2, seed=1)
    actor.begin(requests_of([0], [0]))

    def take(actor, times):
        return [actor.act(requests_of([0], [t % 4]), inputs_of(2, age=t)) for t in times]

    take(actor, range(3))
    state = through_a_file(to_tensors(actor.state_dict()))
    expected = take(actor, range(3, 20))
    other.load_state_dict(to_arrays(state))
    assert other.knows(requests_of([0, 1], [3, 3])).tolist() == [True, False]
    for (fields, beginnings), (again, begun) in zip(
        expected, take(other, range(3, 20)), strict=True
    ):
        for name in fields:
            np.testing.assert_array_equal(fields[name], again[name])
        assert (beginnings is None) == (begun is None)
        if beginnings is not None:
            np.testing.assert_array_equal(beginnings[1], begun[1])
