from __future__ import annotations

import numpy as np
import pytest
from helpers.store import FRAME, ask, make_shared

from sampler.policy_worker.requests import RequestBook, RowAccess, select
from sampler.shm.shared import Topology
from sampler.shm.signals import ANSWERED, ASKED, REFUSED
from sampler.shm.store import FRAMES
from sampler.spaces import frame_stacks


@pytest.mark.parametrize("policies", [1, 2])
def test_requests_are_collected_once_by_the_one_who_serves_them(policies):
    shared = make_shared(Topology(2, 2, 2, policies))
    books = [RequestBook(shared, policy) for policy in range(policies)]
    assert all(book.collect() is None for book in books)
    ask(shared, group=1, token=4, step=3, row=7)
    ask(shared, group=2, token=0, step=1)
    served = {}
    for book in books:
        requests = book.collect()
        assert len(requests) == 2 // policies
        for i, position in enumerate(requests.positions):
            served[int(book.groups[position])] = (requests.steps[i], requests.rows[i])
        woken = book.answer(requests)
        assert woken == set((book.groups[requests.positions] // 2).tolist())
        assert book.collect() is None
    assert served == {1: (3, 7), 2: (1, 0)}


def test_lanes_and_rows_of_a_request():
    shared = make_shared(Topology(2, 2, 2, 2))
    book = RequestBook(shared, 1)  # serves worker 1: groups 2 and 3, lanes 4 to 7
    assert book.lanes.tolist() == [4, 5, 6, 7]
    ask(shared, group=3, token=5, step=2)
    requests = book.collect()
    assert requests.lanes.tolist() == [2, 3]
    assert requests.stored.tolist() == [10, 11]  # two rows for each token


def test_refused_requests_are_not_collected_until_asked_again():
    shared = make_shared()
    book = RequestBook(shared, 0)
    ask(shared, group=0, token=0, step=1)
    ask(shared, group=1, token=1, step=2)
    requests = book.collect()
    assert book.refuse(requests, np.array([True, False])) == {0}
    kept = select(requests, np.array([False, True]))
    assert (kept.positions.tolist(), kept.steps.tolist()) == ([1], [2])
    assert (kept.lanes.tolist(), kept.stored.tolist()) == ([2, 3], [2, 3])
    book.answer(kept)
    assert book.collect() is None
    words = shared.requests
    assert words[0, REFUSED] == words[0, ASKED] != words[0, ANSWERED]
    ask(shared, group=0, token=0, step=0)
    assert book.collect().steps.tolist() == [0]


def test_an_answer_meant_for_a_dead_process_is_not_one_for_the_next():
    shared = make_shared()
    book = RequestBook(shared, 0)
    ask(shared, group=0, token=0, step=1)
    late = book.collect()
    ask(shared, group=0, token=2, step=0)  # by the process started in its place
    book.answer(late)
    assert book.collect().stored.tolist() == [4, 5]


def test_gathering_takes_the_current_observations():
    shared = make_shared()
    store, rows = shared.store, RowAccess(shared, 4)
    store["obs"][:] = np.arange(store["obs"].size).reshape(store["obs"].shape)
    store["age"][:] = np.arange(store["age"].size).reshape(store["age"].shape)
    book = RequestBook(shared, 0)
    ask(shared, group=0, token=3, step=2)
    ask(shared, group=1, token=0, step=4)
    gathered = rows.gather(book.collect(), ["obs", "age"])
    expected = [(1, 2, 2), (1, 3, 2), (0, 0, 4), (0, 1, 4)]  # buffer, row, step
    for name in ("obs", "age"):
        np.testing.assert_array_equal(gathered[name], [store[name][at] for at in expected])


def test_gathered_stacks_equal_those_of_the_batch():
    shared = make_shared(observations=(FRAME,), frame_stack=3)
    store, rng = shared.store, np.random.default_rng(0)
    store[FRAMES][:] = rng.integers(1, 255, store[FRAMES].shape)
    store["age"][:] = rng.integers(0, 4, store["age"].shape)
    rows, book = RowAccess(shared, 4), RequestBook(shared, 0)
    for step in range(4):
        ask(shared, group=0, token=5, step=step)
        ask(shared, group=1, token=2, step=step)
        requests = book.collect()
        gathered = rows.gather(requests, [*["age"], FRAMES])
        for i, stored in enumerate(requests.stored):
            buffer, row = divmod(int(stored), 4)
            fields = store.buffer(buffer)
            stacks = frame_stacks.assemble(fields[FRAMES], fields["age"], 3)
            np.testing.assert_array_equal(gathered[FRAMES][i], stacks[row, step])
        book.answer(requests)
    assert not store.flat_frames[-1].any()


def test_writing_touches_only_the_current_transitions():
    shared = make_shared(state_shape=(2,), outputs={"log_probs": (), "logits": (3,)})
    store, rows, book = shared.store, RowAccess(shared, 4), RequestBook(shared, 0)
    ask(shared, group=0, token=1, step=3)
    requests = book.collect()
    logits = np.arange(6.0).reshape(2, 3)
    rows.write(requests, {"actions": np.array([5, 6]), "logits": logits, "policy_version": 9})
    assert store["actions"].sum() == 11
    assert store["actions"][0, 2:, 3].tolist() == [5, 6]
    np.testing.assert_array_equal(store["logits"][0, 2:, 3], logits)
    assert store["policy_version"].sum() == 18
    rows.write_states(requests.stored[1:], np.array([[1.0, 2.0]]))
    assert store["rnn_state"].sum() == 3
    assert store["rnn_state"][0, 3].tolist() == [1, 2]
