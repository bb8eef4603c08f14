from __future__ import annotations

from helpers.memory import arena_of, child

from sampler.shm.control import PAUSE, STOP, Control


def test_every_worker_has_words_of_its_own():
    arena = arena_of(Control.field(3))
    control = Control(arena)
    control.words[PAUSE] = 1
    for number, worker in enumerate(control.workers):
        for position, name in enumerate(worker.index):
            worker[name] = 10 * number + position
    assert (control.stopped, control.paused) == (False, True)
    for number, worker in enumerate(control.workers):
        assert list(worker.as_dict().values()) == [10 * number + p for p in range(3)]


def obey(connection, arena):
    control = Control(arena)
    control.workers[1]["ready"] = 1
    connection.send("ready")
    while not control.words[STOP]:
        pass
    connection.send("stopped")


def test_words_are_seen_by_other_processes():
    arena = arena_of(Control.field(2))
    control = Control(arena)
    with child(obey, arena) as (_, connection):
        assert connection.recv() == "ready"
        assert [worker["ready"] for worker in control.workers] == [0, 1]
        control.words[STOP] = 1
        assert connection.recv() == "stopped"
