from __future__ import annotations

import numpy as np
import pytest
from helpers.memory import arena_of

from sampler.shm.store import FRAMES, ArraySpec, SequenceStore, StoreSpec

UINT8, FLOAT32 = np.dtype(np.uint8), np.dtype(np.float32)
SPEC = StoreSpec(
    buffers=3,
    rows=6,
    steps=5,
    overlap=0,
    rows_per_token=2,
    observations=(ArraySpec("obs", (4,), FLOAT32),),
    actions=(ArraySpec("actions", (), np.dtype(np.int64)),),
    outputs={"log_probs": ()},
)
STACKS = StoreSpec(
    buffers=3,
    rows=6,
    steps=5,
    overlap=0,
    rows_per_token=3,
    observations=(ArraySpec("obs", (2, 2), UINT8),),
    actions=SPEC.actions,
    frame_stack=4,
)


def test_fields_are_batch_major_and_contiguous():
    store = SequenceStore(arena_of(*SPEC.fields()), SPEC)
    assert store["obs"].shape == (3, 6, 6, 4)
    assert store["rewards"].shape == (3, 6, 5)
    assert store["lane_id"].shape == (3, 6)
    assert "rnn_state" not in store.arrays
    for name, array in store.arrays.items():
        assert array.flags.c_contiguous, name
        assert all(a.flags.c_contiguous for a in store.buffer(1).values())


def test_frames_are_stored_once_with_one_of_zeros():
    store = SequenceStore(arena_of(*STACKS.fields()), STACKS)
    assert store[FRAMES].shape == (3, 6, 4 + 5, 2, 2)
    assert store.flat_frames.shape == (3 * 6 * 9 + 1, 2, 2)
    assert "obs" not in store.arrays
    store[FRAMES][:] = 7
    assert (store.flat_frames[:-1] == 7).all()
    assert not store.flat_frames[-1].any()


@pytest.mark.parametrize("spec", [SPEC, STACKS])
def test_the_blocks_of_the_tokens_are_all_rows_once(spec):
    store = SequenceStore(arena_of(*spec.fields()), spec)
    for token in range(spec.buffers * spec.tokens_per_buffer):
        for array in store.block(token).values():
            assert len(array) == spec.rows_per_token
            array[...] = token + array.astype(np.int64) * 0
    expected = np.repeat(np.arange(spec.buffers * spec.tokens_per_buffer), spec.rows_per_token)
    np.testing.assert_array_equal(store["episode_id"][..., 0].ravel(), expected)
    for buffer in range(spec.buffers):
        np.testing.assert_array_equal(
            store.buffer(buffer)["age"][:, 0], expected.reshape(spec.buffers, -1)[buffer]
        )


def test_bytes_for_each_step():
    per_observation = 4 * 4 + 4  # obs, age
    per_transition = 8 + 4 + 4 + 3 + 8 + 8  # action, log_prob, reward, flags, version, episode
    per_row = 8  # lane
    expected = (6 * per_observation + 5 * per_transition + per_row) / 5
    assert SPEC.bytes_per_step == pytest.approx(expected)
