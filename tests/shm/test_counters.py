from __future__ import annotations

import time

from helpers.memory import arena_of, child

from sampler.shm.counters import LEARNER, POLICY, ROLLOUT, WORDS, Counters, Stage


def test_every_process_has_words_of_its_own():
    arena = arena_of(Counters.field(3, 2))
    counters = Counters(arena, 3, 2)
    rows = [counters.learner, *counters.rollout, *counters.policy]
    for number, row in enumerate(rows):
        for position, name in enumerate(row.index):
            row[name] = 100 * number + position
    for number, row in enumerate(rows):
        assert row.as_dict() == {n: 100 * number + p for p, n in enumerate(row.index)}
    counters.rollout[1].add("steps", 5)
    assert counters.rollout[1]["steps"] == 200 + ROLLOUT.index("steps") + 5
    assert counters.rollout[2]["steps"] == 300 + ROLLOUT.index("steps")


def test_names_fit_and_are_unique():
    for names in (LEARNER, ROLLOUT, POLICY):
        assert len(set(names)) == len(names) <= WORDS


def test_entering_a_stage_tells_what_and_since_when():
    arena = arena_of(Counters.field(1, 0))
    row = Counters(arena, 1, 0).rollout[0]
    before = time.monotonic_ns()
    now = row.enter(Stage.STEPPING)
    assert before <= now <= time.monotonic_ns()
    assert (row["stage"], row["stage_since"]) == (Stage.STEPPING, now)


def count(connection, arena):
    Counters(arena, 2, 1).policy[0].add("batches", 3)
    connection.send("done")


def test_other_processes_see_them():
    arena = arena_of(Counters.field(2, 1))
    with child(count, arena) as (_, connection):
        assert connection.recv() == "done"
    assert Counters(arena, 2, 1).policy[0]["batches"] == 3
