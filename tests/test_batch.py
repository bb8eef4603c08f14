from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from sampler import ReleasedBatchError, SequenceBatch
from sampler.lease import Lease
from sampler.shm.arena import Arena, Layout
from sampler.shm.store import FRAMES, ArraySpec, SequenceStore, StoreSpec
from sampler.spaces import frame_stacks

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
OBSERVATIONS = spaces.Dict({"a": BOX, "b": spaces.Tuple((BOX,))})
ACTIONS = spaces.Tuple((spaces.Discrete(3), BOX))
VECTOR = ArraySpec("x", (2,), np.dtype(np.float32))


def spec_of(**changes):
    values = {
        "buffers": 2,
        "rows": 4,
        "steps": 5,
        "overlap": 0,
        "rows_per_token": 2,
        "observations": (ArraySpec("obs.a", (2,), VECTOR.dtype), ArraySpec("obs.b.0", (2,), VECTOR.dtype)),  # noqa: E501
        "actions": (ArraySpec("actions.0", (), np.dtype(np.int64)), ArraySpec("actions.1", (2,), VECTOR.dtype)),  # noqa: E501
        "outputs": {"log_probs": (), "logits": (7,)},
    }  # fmt: skip
    return StoreSpec(**{**values, **changes})


def batch_of(spec, inputs=("obs",), lease=None):
    store = SequenceStore(Arena(Layout(spec.fields())), spec)
    rng = np.random.default_rng(0)
    for array in store.arrays.values():
        array[...] = rng.integers(0, 2, array.shape).astype(array.dtype)
    return SequenceBatch(store.buffer(1), spec, OBSERVATIONS, ACTIONS, inputs, lease)


def test_observations_and_actions_are_nested_like_their_spaces():
    batch = batch_of(spec_of())
    assert set(batch.obs) == {"a", "b"}
    assert batch.obs["a"].shape == (4, 6, 2)
    np.testing.assert_array_equal(batch.obs["b"][0], batch["obs.b.0"])
    assert [a.shape for a in batch.actions] == [(4, 5), (4, 5, 2)]
    assert batch.logits.shape == (4, 5, 7)
    assert batch.model_obs.keys() == batch.obs.keys()


def test_a_model_that_asks_for_the_previous_step_gets_all_of_it():
    batch = batch_of(spec_of(previous=True), ("obs", "previous_actions", "previous_rewards"))
    assert set(batch.model_obs) == {"obs", "previous_actions", "previous_rewards"}
    assert [a.shape for a in batch.model_obs["previous_actions"]] == [(4, 6), (4, 6, 2)]
    assert batch.model_obs["previous_rewards"].shape == (4, 6)


def test_masks_and_states_are_there_when_the_store_has_them():
    batch = batch_of(spec_of(action_mask_size=3, state_shape=(2, 8)))
    assert batch.action_mask.shape == (4, 6, 3)
    assert batch.rnn_state.shape == (4, 2, 8)
    batch = batch_of(spec_of())
    assert batch.action_mask is None
    assert batch.rnn_state is None


def test_slices_share_memory_and_may_be_sliced_again():
    batch = batch_of(spec_of())
    part = batch[1:4][::2]
    assert len(part) == 2
    np.testing.assert_array_equal(part.rewards, batch.rewards[[1, 3]])
    assert np.shares_memory(part.rewards, batch.rewards)


def test_tensors_are_the_same_batch():
    batch = batch_of(spec_of())
    tensors = batch.to("cpu")
    assert isinstance(tensors.obs["a"], torch.Tensor)
    for name, array in batch.fields.items():
        np.testing.assert_array_equal(tensors[name].numpy(), array)
    assert tensors[1:3].mask.shape == (2, 5)
    assert len(tensors) == 4


def test_releasing_ends_a_batch_and_all_that_was_made_of_it():
    released = []
    batch = batch_of(spec_of(), lease=Lease(lambda: released.append(1)))
    part, tensors = batch[1:3], batch.to("cpu")
    part.release()
    tensors.release()
    assert released == [1]
    for used in (batch, part, tensors):
        for use in (lambda b=used: b.rewards, lambda b=used: b.obs, lambda b=used: b[0:1]):
            with pytest.raises(ReleasedBatchError):
                use()


def expected_stacks(frames, age, size):
    """The plain definition of stacking."""
    rows, steps = age.shape
    stacks = np.zeros((rows, steps, size, *frames.shape[2:]), frames.dtype)
    for row in range(rows):
        for t in range(steps):
            for back in range(min(size, age[row, t] + 1)):
                stacks[row, t, size - 1 - back] = frames[row, t + size - 1 - back]
    return stacks


@pytest.mark.parametrize("size", [2, 3, 4])
def test_stacks_are_oldest_first_with_zeros_before_the_episode(size):
    rng = np.random.default_rng(size)
    age = np.array([[0, 1, 2, 3, 4, 0, 1], [7, 0, 0, 1, 2, 3, 4]], np.int32)
    frames = rng.integers(1, 255, (2, size - 1 + 7, 3, 2), np.uint8)
    expected = expected_stacks(frames, age, size)
    np.testing.assert_array_equal(frame_stacks.assemble(frames, age, size), expected)
    tensors = frame_stacks.assemble(torch.from_numpy(frames), torch.from_numpy(age), size)
    np.testing.assert_array_equal(tensors.numpy(), expected)


def test_a_batch_of_single_frames_stacks_them_when_asked():
    frame = ArraySpec("obs", (3, 2), np.dtype(np.uint8))
    spec = spec_of(observations=(frame,), frame_stack=3)
    batch = batch_of(spec)
    assert batch.fields[FRAMES].shape == (4, 3 + 5, 3, 2)
    assert batch.obs.shape == (4, 6, 3, 3, 2)
    np.testing.assert_array_equal(batch.obs, expected_stacks(batch.fields[FRAMES], batch.age, 3))
    np.testing.assert_array_equal(batch[1:2].obs, batch.obs[1:2])


def test_attributes_that_do_not_exist():
    batch = batch_of(spec_of())
    with pytest.raises(AttributeError, match="no field 'advantages'"):
        _ = batch.advantages
    with pytest.raises(AttributeError):
        _ = batch._private
    assert not hasattr(batch, "previous_actions")
    assert isinstance(batch.observation_space, gym.Space)


# ---- a mapping of fields


def test_the_fields_are_a_mapping():
    batch = batch_of(spec_of())
    names = list(batch.fields)
    assert list(batch) == list(batch.keys()) == list(dict(batch)) == names
    assert dict(batch.items())["rewards"] is batch["rewards"]
    assert {**batch}.keys() == set(names)
    assert "logits" in batch
    assert "values" not in batch
    assert batch.get("values") is None
    with pytest.raises(KeyError, match=r"no field 'values' in this batch; it has .*rewards"):
        _ = batch["values"]


def test_everything_of_a_released_batch_raises_the_same_error():
    batch = batch_of(spec_of(), lease=Lease(lambda: None))
    batch.release()
    uses = [len, list, dict, copy.copy, pickle.dumps, lambda b: b.values]
    uses += [lambda b: "rewards" in b, lambda b: b["x"], lambda b: b.get("x"), lambda b: b[[0]]]
    uses += [lambda b: b.to("cpu"), lambda b: b.flatten(), lambda b: b.with_fields(x=np.zeros(4))]
    for use in uses:
        with pytest.raises(ReleasedBatchError):
            use(batch)
    assert repr(batch) == "SequenceBatch(released)"


def test_it_says_what_is_in_it():
    batch = batch_of(spec_of())
    assert repr(batch).startswith("SequenceBatch(4 rows of 5 steps, numpy: ")
    assert "logits float32 [4, 5, 7]" in repr(batch)
    assert "torch, cpu" in repr(batch.to("cpu"))


# ---- rows


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_rows_by_indices_and_by_masks_are_copies_that_outlive_the_release(kind):
    batch = batch_of(spec_of(), lease=Lease(lambda: None))
    expected = batch.logits[[2, 0]].copy()
    source = batch if kind == "numpy" else batch.to("cpu")
    parts = [source[[2, 0]], source[np.array([2, 0])], source[torch.tensor([2, 0])]]
    mask = np.array([True, False, True, False])
    parts += [source[mask][::-1] if kind == "numpy" else source[mask][[1, 0]]]
    parts += [source[torch.from_numpy(mask)][[1, 0]], source[mask.tolist()][[1, 0]]]
    assert len(source[[]]) == len(source[np.zeros(4, bool)]) == 0
    batch.logits[...] = np.nan
    batch.release()
    for part in parts:
        assert len(part) == 2
        np.testing.assert_array_equal(np.asarray(part.logits), expected)


@pytest.mark.parametrize("rows", [3, [0.5], [True, False], [[0, 1]], None])
def test_what_chooses_no_rows_is_refused(rows):
    with pytest.raises(IndexError, match=r"chooses no rows; use a slice, integers"):
        _ = batch_of(spec_of())[rows]


def test_copies_are_their_own():
    batch = batch_of(spec_of(), lease=Lease(lambda: None))
    batch.rewards[...] = 3.0
    copies = [batch.copy(), copy.copy(batch), copy.deepcopy(batch), batch.to("cpu").copy()]
    copies += [pickle.loads(pickle.dumps(batch)), pickle.loads(pickle.dumps(batch.to("cpu")))]
    batch.rewards[...] = 0.0
    batch.release()
    for one in copies:
        assert (np.asarray(one.rewards) == 3.0).all()
        assert set(one.obs) == {"a", "b"}
        assert len(one[1:]) == 3


# ---- more fields


def test_added_fields_stay_with_the_batch():
    batch = batch_of(spec_of())
    advantages = np.arange(20.0).reshape(4, 5)
    more = batch.with_fields(advantages=advantages, rewards=-batch.rewards)
    assert "advantages" not in batch
    for part in (more[1:3], more[[1, 2]], more.copy()[1:3], more.to("cpu")[1:3]):
        np.testing.assert_array_equal(np.asarray(part.advantages), advantages[1:3])
        np.testing.assert_array_equal(np.asarray(part.rewards), -batch.rewards[1:3])
    np.testing.assert_array_equal(more.flatten(False).advantages, advantages.reshape(20, 1))


def test_fields_are_not_set_by_assignment():
    with pytest.raises(AttributeError, match=r"use batch.with_fields\(advantages=...\)"):
        batch_of(spec_of()).advantages = 1


@pytest.mark.parametrize("name", ["obs", "to", "spec", "is_first", "_lease", "copy"])
def test_names_that_would_hide_something_are_refused(name):
    with pytest.raises(ValueError, match=f"another use for '{name}'"):
        batch_of(spec_of()).with_fields(**{name: np.zeros((4, 5))})


def test_fields_of_another_number_of_rows_are_refused():
    with pytest.raises(ValueError, match=r"advantages has shape \[3, 5\]; the batch has 4 rows"):
        batch_of(spec_of()).with_fields(advantages=np.zeros((3, 5)))


# ---- parts


def test_minibatches_are_all_rows_once():
    batch = batch_of(spec_of())
    batch.lane_id[...] = np.arange(4)
    parts = list(batch.minibatches(3))
    assert [part.lane_id.tolist() for part in parts] == [[0, 1, 2], [3]]
    assert np.shares_memory(parts[0].rewards, batch.rewards)
    for generator in (np.random.default_rng(1), torch.Generator().manual_seed(1)):
        for source in (batch, batch.to("cpu")):
            orders = [
                [n for part in source.minibatches(3, generator) for n in part.lane_id.tolist()]
                for _ in range(10)
            ]
            assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
            assert len({tuple(order) for order in orders}) > 1
    with pytest.raises(ValueError, match="rows=0"):
        next(batch.minibatches(0))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_flattened_steps_are_rows_of_one_step(kind):
    batch = batch_of(spec_of(previous=True, action_mask_size=3))
    batch.lane_id[...] = np.arange(4)
    batch.mask[...] = np.arange(20).reshape(4, 5) % 3 > 0
    source = batch if kind == "numpy" else batch.to("cpu")
    rows, steps = batch.mask.nonzero()
    flat = source.flatten()
    assert len(flat) == len(rows) == 13
    assert flat.spec.steps == 1
    np.testing.assert_array_equal(np.asarray(flat.lane_id), rows)
    np.testing.assert_array_equal(np.asarray(flat.rewards)[:, 0], batch.rewards[rows, steps])
    np.testing.assert_array_equal(
        np.asarray(flat.actions[1])[:, 0], batch["actions.1"][rows, steps]
    )
    for part, after in ((0, 0), (1, 1)):
        expected = batch.obs["a"][rows, steps + after]
        np.testing.assert_array_equal(np.asarray(flat.obs["a"])[:, part], expected)
        expected = batch.action_mask[rows, steps + after]
        np.testing.assert_array_equal(np.asarray(flat.action_mask)[:, part], expected)
    assert len(source.flatten(valid_only=False)) == 20


def test_flattened_stacks_are_those_of_the_rows():
    spec = spec_of(observations=(ArraySpec("obs", (3, 2), np.dtype(np.uint8)),), frame_stack=3)
    batch = batch_of(spec)
    batch.age[...] = [[0, 1, 2, 3, 4, 0]] * 4
    flat = batch.flatten(valid_only=False)
    assert flat.obs.shape == (20, 2, 3, 3, 2)
    np.testing.assert_array_equal(flat.obs[:, 0], batch.obs[:, :-1].reshape(20, 3, 3, 2))
    np.testing.assert_array_equal(flat.obs[:, 1], batch.obs[:, 1:].reshape(20, 3, 3, 2))


def test_steps_of_a_model_with_memory_stay_in_their_rows():
    with pytest.raises(ValueError, match="use minibatches"):
        batch_of(spec_of(state_shape=(2, 8))).flatten()


# ---- transfers


class Device:
    """A device whose queue of copies is worked off only when somebody waits for it."""

    def __init__(self, monkeypatch):
        self.queue = []
        original = torch.Tensor.to

        def to(tensor, target, non_blocking=False):
            if torch.device(target).type != "cuda":
                return original(tensor, target, non_blocking=non_blocking)
            assert non_blocking
            copied = torch.empty_like(tensor)
            self.queue.append(lambda: copied.copy_(tensor))
            return copied

        monkeypatch.setattr(torch.Tensor, "to", to)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self)
        monkeypatch.setattr(torch.cuda, "Event", self.event)

    def event(self):
        recorded = []
        return SimpleNamespace(
            record=lambda stream: recorded.extend(stream.queue),
            synchronize=lambda: [copy() for copy in recorded],
        )


def test_a_release_waits_for_transfers_that_still_read_the_rows(monkeypatch):
    Device(monkeypatch)

    def overwrite():
        rewards[...] = np.nan

    batch = batch_of(spec_of(), lease=Lease(overwrite))
    rewards = batch.rewards
    rewards[...] = 3.0
    tensors = batch.to("cuda")
    parts = [batch[:2].to("cuda"), batch[2:].to("cuda:0")]
    received = [b.rewards for b in (tensors, *parts)]
    batch.release()
    assert np.isnan(rewards).all()
    for tensor in received:
        assert (tensor == 3.0).all()
