from __future__ import annotations

import numpy as np
from helpers.store import make_shared

from sampler.policy_worker.requests import RequestBook
from sampler.rollout_worker.request import Request


def test_a_request_is_answered_once():
    shared = make_shared()
    request, book = Request(shared, 1), RequestBook(shared, 0)
    request.begin(token=4, step=0, row=3)
    assert book.collect() is None  # nothing has been asked yet
    for step in (0, 1):
        request.ask(step)
        assert not request.answered
        requests = book.collect()
        assert (requests.steps.tolist(), requests.rows.tolist()) == ([step], [3])
        assert requests.stored.tolist() == [8, 9]
        book.answer(requests)
        assert request.answered
        assert not request.refused


def test_a_refused_request_is_not_answered():
    shared = make_shared()
    request, book = Request(shared, 0), RequestBook(shared, 0)
    request.ask(2)
    book.refuse(book.collect(), np.array([True]))
    assert request.refused
    assert not request.answered
    request.ask(0)
    assert not request.refused


def test_the_process_started_in_anothers_place_counts_on():
    shared = make_shared()
    book = RequestBook(shared, 0)
    Request(shared, 0).ask(1)
    late = book.collect()
    successor = Request(shared, 0)
    successor.ask(0)
    book.answer(late)
    assert not successor.answered
    book.answer(book.collect())
    assert successor.answered
