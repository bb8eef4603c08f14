from __future__ import annotations

import numpy as np
import pytest
from helpers.store import FRAME, make_shared

from sampler.rollout_worker.rows import RowFiller
from sampler.shm.store import FRAMES


class Rows:
    """A filler, and rows filled with numbers that count the lane's steps."""

    def __init__(self, **changes):
        self.shared = make_shared(**changes)
        self.spec = self.shared.spec
        self.filler = RowFiller(self.shared.store, range(2, 4))
        self.filler.carry["age"][:, -1] = 0
        self.time = 0
        self.names = [FRAMES] if self.spec.stacks_frames else ["obs"]
        self._observe({name: self.filler.carry[name] for name in self.names}, -1)

    def _observe(self, arrays, at):
        for array in arrays.values():
            array[:, at] = self.time

    def begin(self, token):
        block = self.filler.block(token)
        step = self.filler.begin(block, np.array([7, 8]))
        return block, step

    def step(self, block, step):
        block.rewards[:, step] = self.time
        self.time += 1
        self._observe({n: block.arrays[n] for n in self.names}, step + self.spec.frame_stack)

    def fill(self, token, upto=None):
        block, step = self.begin(token)
        for t in range(step, upto or self.spec.steps):
            self.step(block, t)
        return block


def test_a_row_begins_where_the_one_before_ended():
    rows = Rows()
    first = rows.fill(0)
    rows.filler.end(first)
    second = rows.fill(3)
    assert first.arrays["obs"][0, :, 0].tolist() == [0, 1, 2, 3, 4]
    assert second.arrays["obs"][0, :, 0].tolist() == [4, 5, 6, 7, 8]
    assert second.age.tolist() == [[4, 5, 6, 7, 8]] * 2
    assert second.arrays["lane_id"].tolist() == [2, 3]
    assert second.episode_id.tolist() == [[7] * 4, [8] * 4]
    assert second.mask.all()


@pytest.mark.parametrize("overlap", [1, 2, 3])
def test_rows_that_overlap_repeat_everything(overlap):
    rows = Rows(overlap=overlap)
    before = rows.fill(0)
    assert before.rewards[0].tolist() == [0, 1, 2, 3]
    for token in range(1, 5):
        rows.filler.end(before)
        kept = {name: array.copy() for name, array in before.arrays.items()}
        block, step = rows.begin(token)
        assert step == overlap
        for name, array in block.arrays.items():
            if name != "lane_id":
                shared = overlap + (array.shape[1] == 5)
                np.testing.assert_array_equal(array[:, :shared], kept[name][:, -shared:])
        for t in range(step, 4):
            rows.step(block, t)
        start = token * (4 - overlap)
        assert block.arrays["obs"][1, :, 1].tolist() == list(range(start, start + 5))
        assert block.age[0].tolist() == list(range(start, start + 5))
        before = block


@pytest.mark.parametrize("overlap", [0, 2])
def test_frames_keep_their_history(overlap):
    rows = Rows(overlap=overlap, observations=(FRAME,), frame_stack=3)
    first = rows.fill(0)
    rows.filler.end(first)
    second = rows.fill(1)
    assert first.arrays[FRAMES][0, :, 0, 0].tolist() == [0, 0, 0, 1, 2, 3, 4]
    start = 4 - overlap
    assert second.arrays[FRAMES][0, :, 0, 0].tolist() == list(range(start - 2, start + 5))


@pytest.mark.parametrize("stack", [1, 3])
def test_rows_that_are_given_up_leave_only_the_present_observation(stack):
    changes = {"observations": (FRAME,), "frame_stack": 3} if stack > 1 else {}
    rows = Rows(overlap=2, **changes)
    rows.filler.end(rows.fill(0))
    block = rows.fill(1, upto=3)
    assert rows.time == 5
    rows.filler.cut(block, 3)
    after, step = rows.begin(2)
    assert step == 0  # there is nothing that could be repeated
    assert after.age[0].tolist() == [5, 6, 7, 8, 9]
    if stack > 1:
        assert after.arrays[FRAMES][0, :3, 0, 0].tolist() == [3, 4, 5]
    else:
        assert after.arrays["obs"][0, 0].tolist() == [5, 5]


def test_a_reset_begins_an_episode_in_one_lane():
    rows = Rows()
    block, _ = rows.begin(0)
    rows.filler.begin_episode(block, 1, 2, 99)
    assert block.mask.tolist() == [[True] * 4, [True, True, False, True]]
    assert block.age.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 1]]
    assert block.episode_id.tolist() == [[7] * 4, [8, 8, 8, 99]]
    rows.filler.begin_episode(block, 0, 3, 50)
    assert block.age[0].tolist() == [0, 1, 2, 3, 0]
    rows.filler.end(block)
    after, _ = rows.begin(1)
    assert after.age[:, :2].tolist() == [[0, 1], [1, 2]]


def test_a_row_that_is_used_again_remembers_nothing():
    rows = Rows()
    block, _ = rows.begin(0)
    block.terminated[:] = block.truncated[:] = True
    rows.filler.begin_episode(block, 0, 1, 5)
    rows.filler.end(block)
    again, _ = rows.begin(0)
    assert again.mask.all()
    assert not again.terminated.any()
    assert not again.truncated.any()
