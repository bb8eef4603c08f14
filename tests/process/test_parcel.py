from __future__ import annotations

import pickle
import threading

import pytest

from sampler.errors import ConfigError
from sampler.process.parcel import Parcel


class Counted:
    """Counts how often it is pickled and unpickled."""

    pickled = 0
    unpickled = 0

    def __getstate__(self):
        Counted.pickled += 1
        return {"x": 3}

    def __setstate__(self, state):
        Counted.unpickled += 1
        self.__dict__.update(state)


def test_here_the_value_is_itself():
    value = threading.Lock()  # cannot be pickled
    parcel = Parcel(value, "the lock")
    assert parcel.opened
    assert parcel.value is value


def test_a_value_is_pickled_once_and_unpickled_where_it_is_asked_for():
    Counted.pickled = Counted.unpickled = 0
    parcel = Parcel(Counted(), "it")
    sent = [pickle.loads(pickle.dumps(parcel)) for _ in range(3)]
    assert (Counted.pickled, Counted.unpickled) == (1, 0)
    assert not sent[0].opened
    assert sent[0].value is sent[0].value
    assert (Counted.pickled, Counted.unpickled) == (1, 1)
    again = pickle.loads(pickle.dumps(sent[1]))  # on to another process, unopened
    assert again.value.x == 3
    assert (Counted.pickled, Counted.unpickled) == (1, 2)


def test_closures_can_be_sent():
    two = 2
    parcel = pickle.loads(pickle.dumps(Parcel(lambda x: x + two, "the function")))
    assert parcel.value(3) == 5


def test_what_is_sent_knows_its_file():
    def own():
        return 1

    parcel = pickle.loads(pickle.dumps(Parcel(own, "the function")))
    assert parcel.value is not own
    assert parcel.value.__code__.co_filename == __file__
    assert parcel.value() == 1


def test_what_cannot_be_sent_is_named_with_the_remedy():
    with pytest.raises(ConfigError, match=r"^the lock cannot be sent to worker processes \(Type"):
        Parcel(threading.Lock(), "the lock").pack()
