from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from sampler import ReleasedBatchError, SequenceBatch
from sampler.batch import Lease, stack_frames
from sampler.shm.arena import Arena, Layout
from sampler.shm.store import FRAMES, ArraySpec, SequenceStore, StoreSpec

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


def frame_stacks(frames, age, size):
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
    expected = frame_stacks(frames, age, size)
    np.testing.assert_array_equal(stack_frames(frames, age, size), expected)
    tensors = stack_frames(torch.from_numpy(frames), torch.from_numpy(age), size)
    np.testing.assert_array_equal(tensors.numpy(), expected)


def test_a_batch_of_single_frames_stacks_them_when_asked():
    frame = ArraySpec("obs", (3, 2), np.dtype(np.uint8))
    spec = spec_of(observations=(frame,), frame_stack=3)
    batch = batch_of(spec)
    assert batch.fields[FRAMES].shape == (4, 3 + 5, 3, 2)
    assert batch.obs.shape == (4, 6, 3, 3, 2)
    np.testing.assert_array_equal(batch.obs, frame_stacks(batch.fields[FRAMES], batch.age, 3))
    np.testing.assert_array_equal(batch[1:2].obs, batch.obs[1:2])


def test_attributes_that_do_not_exist():
    batch = batch_of(spec_of())
    with pytest.raises(AttributeError, match="no field 'advantages'"):
        _ = batch.advantages
    with pytest.raises(AttributeError):
        _ = batch._private
    assert isinstance(batch.observation_space, gym.Space)
