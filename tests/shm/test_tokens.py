"""The row-token protocol against a plain model of it, with writers that die at any instant."""

from __future__ import annotations

from contextlib import contextmanager

import hypothesis.strategies as st
import numpy as np
import pytest
from helpers.memory import arena_of
from hypothesis import assume, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sampler.shm.lock import ProcessLock
from sampler.shm.tokens import ABANDONED, FILLING, FINISHED, FREE, NONE, TokenPool

ALL_LATE = -1.0  # a timeout so short that every row is late


def make_pool(buffers, tokens_per_buffer, groups, sync=False):
    arena = arena_of(*TokenPool.fields(buffers, tokens_per_buffer, groups))
    pool = TokenPool(arena, ProcessLock(arena.fd), sync)
    pool.reset()
    return pool


class Killed(BaseException):
    """The process ends here."""


class Mortal(np.ndarray):
    """An array whose writer is killed when it has written a number of times."""

    writes_left: int | None = None

    def __setitem__(self, index, value):
        if Mortal.writes_left is not None:
            if Mortal.writes_left == 0:
                raise Killed
            Mortal.writes_left -= 1
        super().__setitem__(index, value)


@contextmanager
def killed_after(writes):
    Mortal.writes_left = writes
    try:
        yield
    except Killed:
        pass
    finally:
        Mortal.writes_left = None


class Protocol(RuleBasedStateMachine):
    """Groups claim, fill and finish; the learner takes, gives up and releases; workers die.

    The model: for each token its state and owner, for each buffer its turn and whether it is held,
    for each group the token that it fills, and a queue of the groups that wait.
    """

    @initialize(
        buffers=st.integers(2, 4),
        per_buffer=st.integers(1, 3),
        workers=st.integers(1, 4),
        groups_per_worker=st.integers(1, 3),
        sync=st.booleans(),
    )
    def start(self, buffers, per_buffer, workers, groups_per_worker, sync):
        self.pool = make_pool(buffers, per_buffer, workers * groups_per_worker, sync)
        for name in ("_status", "_owner", "_since_ns", "ticket", "grant", "next_ticket"):
            setattr(self.pool, name, getattr(self.pool, name).view(Mortal))
        self.per_buffer, self.sync = per_buffer, sync
        self.groups_per_worker = groups_per_worker
        self.groups = range(workers * groups_per_worker)
        self.state = [FREE] * (buffers * per_buffer)
        self.owner = {}  # of tokens that are being filled or were given up
        self.order = list(range(buffers))  # as they are filled
        self.held = set()
        self.filling = dict.fromkeys(self.groups, NONE)
        self.queue = []

    # ---- the model

    def tokens_of(self, buffer):
        return range(buffer * self.per_buffer, (buffer + 1) * self.per_buffer)

    def next_free(self):
        for buffer in self.order[:1] if self.sync else self.order:
            if buffer not in self.held:
                for token in self.tokens_of(buffer):
                    if self.state[token] == FREE:
                        return token
        return NONE

    def give(self, group, token):
        self.state[token], self.owner[token], self.filling[group] = FILLING, group, token

    def serve_queue(self):
        """The groups served, in order."""
        served = []
        while self.queue and (token := self.next_free()) != NONE:
            group = self.queue.pop(0)
            self.give(group, token)
            served.append(group)
        return served

    def come_back(self, token):
        del self.owner[token]
        held = token // self.per_buffer in self.held
        self.state[token] = FINISHED if held else FREE

    def complete(self):
        for buffer in self.order:
            states = {self.state[token] for token in self.tokens_of(buffer)}
            if buffer not in self.held and states <= {FINISHED, ABANDONED} and FINISHED in states:
                return buffer
        return NONE

    # ---- rollout workers

    @rule(data=st.data())
    def claim(self, data):
        idle = [g for g in self.groups if self.filling[g] == NONE and g not in self.queue]
        assume(idle)
        self.claim_for(data.draw(st.sampled_from(idle)))

    def claim_for(self, group):
        token = self.next_free()
        assert self.pool.claim(group) == token
        if token == NONE:
            self.queue.append(group)
            assert self.pool.granted(group) == NONE
        else:
            self.give(group, token)

    @rule(data=st.data())
    def finish_and_claim(self, data):
        busy = [g for g in self.groups if self.filling[g] != NONE]
        assume(busy)
        group = data.draw(st.sampled_from(busy))
        self.finish(group)
        self.claim_for(group)

    def finish(self, group):
        token = self.filling[group]
        in_time = self.state[token] == FILLING
        assert self.pool.is_filling(token) == in_time
        assert self.pool.finish(token) == in_time
        self.filling[group] = NONE
        if in_time:
            self.state[token] = FINISHED
            del self.owner[token]
        else:
            self.come_back(token)

    # ---- the learner

    @rule()
    def take(self):
        expected = self.complete()
        taken = self.pool.take()
        if expected == NONE:
            assert taken is None
            return
        buffer, given_up = taken
        assert buffer == expected
        states = [self.state[token] for token in self.tokens_of(buffer)]
        assert given_up.tolist() == [state == ABANDONED for state in states]
        self.held.add(buffer)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        buffer = data.draw(st.sampled_from(sorted(self.held)))
        self.held.remove(buffer)
        self.order.remove(buffer)
        self.order.append(buffer)
        for token in self.tokens_of(buffer):
            if self.state[token] == FINISHED:
                self.state[token] = FREE
        assert self.pool.release(buffer) == self.serve_queue()

    @rule()
    def give_up_late_rows(self):
        late = []
        for buffer in self.order:
            states = [self.state[token] for token in self.tokens_of(buffer)]
            if FINISHED in states and FREE not in states:
                late += [t for t in self.tokens_of(buffer) if self.state[t] == FILLING]
        assert self.pool.abandon_late(ALL_LATE) == len(late)
        for token in late:
            self.state[token] = ABANDONED

    @rule()
    def nothing_is_late_before_the_time(self):
        assert self.pool.abandon_late(3600.0) == 0

    # ---- a worker dies, in the middle of something or not, and its groups start again

    @rule(data=st.data(), writes=st.integers(0, 4), finishing=st.booleans())
    def die(self, data, writes, finishing):
        worker = data.draw(st.sampled_from(self.groups[:: self.groups_per_worker]))
        own = range(worker, worker + self.groups_per_worker)
        busy = [g for g in own if self.filling[g] != NONE]
        idle = [g for g in own if self.filling[g] == NONE and g not in self.queue]
        if finishing and busy:
            group = data.draw(st.sampled_from(busy))
            token = self.filling[group]
            with killed_after(writes):
                self.pool.finish(token)
            if self.state[token] == FILLING and self.pool.status.flat[token] == FINISHED:
                self.state[token] = FINISHED  # it died only after that
                del self.owner[token]
        elif idle:
            with killed_after(writes):
                self.pool.claim(data.draw(st.sampled_from(idle)))
        for token, owner in list(self.owner.items()):
            if owner in own and self.state[token] == FILLING:
                self.state[token] = FREE
                del self.owner[token]
            elif owner in own:
                self.come_back(token)
        for group in own:
            self.filling[group] = NONE
        self.queue = [group for group in self.queue if group not in own]
        assert self.pool.reclaim(own) == self.serve_queue()

    # ---- at any time

    @invariant()
    def pool_and_model_agree(self):
        if not hasattr(self, "pool"):
            return
        assert self.pool.status.ravel().tolist() == self.state
        assert np.flatnonzero(self.pool.held).tolist() == sorted(self.held)
        assert np.argsort(self.pool.turn).tolist() == self.order
        for token, owner in self.owner.items():
            assert self.pool.owner.flat[token] == owner
        waiting = np.flatnonzero(self.pool.ticket)
        assert waiting[np.argsort(self.pool.ticket[waiting])].tolist() == self.queue
        for group in self.groups:
            if group in self.queue:
                assert self.pool.granted(group) == NONE
        assert len(self.owner) == sum(token != NONE for token in self.filling.values())

    @invariant()
    def nobody_waits_while_rows_are_free(self):
        if hasattr(self, "pool"):
            assert not self.queue or self.next_free() == NONE

    def teardown(self):
        """Whatever happened, every group gets rows again and again from here on."""
        if not hasattr(self, "pool"):
            return
        for buffer in sorted(self.held):
            self.held.remove(buffer)
            self.order.remove(buffer)
            self.order.append(buffer)
            for token in self.tokens_of(buffer):
                if self.state[token] == FINISHED:
                    self.state[token] = FREE
            self.pool.release(buffer)
            self.serve_queue()
        finished = dict.fromkeys(self.groups, 0)
        for _ in range(4 * (len(self.groups) + len(self.state))):
            for group in self.groups:
                if self.filling[group] == NONE and group not in self.queue:
                    self.claim_for(group)
            busy = [g for g in self.groups if self.filling[g] != NONE]
            for group in busy:
                finished[group] += 1
                self.finish(group)
                self.claim_for(group)
            while (taken := self.pool.take()) is not None:
                buffer = taken[0]
                assert buffer == self.complete()
                self.order.remove(buffer)
                self.order.append(buffer)
                for token in self.tokens_of(buffer):
                    if self.state[token] == FINISHED:
                        self.state[token] = FREE
                assert self.pool.release(buffer) == self.serve_queue()
        assert min(finished.values()) >= 2, f"a group starves: {finished}"


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


def test_waiting_groups_are_served_in_the_order_in_which_they_asked():
    pool = make_pool(buffers=2, tokens_per_buffer=1, groups=5)
    assert [pool.claim(group) for group in range(5)] == [0, 1, NONE, NONE, NONE]
    pool.finish(0)
    pool.finish(1)
    buffer, _ = pool.take()
    assert pool.release(buffer) == [2]
    assert [pool.granted(group) for group in (2, 3, 4)] == [0, NONE, NONE]


def test_rows_are_given_up_only_when_they_alone_are_waited_for(monkeypatch):
    now = 0
    monkeypatch.setattr("sampler.shm.tokens.time.monotonic_ns", lambda: now)
    pool = make_pool(buffers=2, tokens_per_buffer=3, groups=3)
    tokens = [pool.claim(group) for group in range(2)]
    now = int(10e9)
    pool.finish(tokens[0])
    now = int(20e9)
    assert pool.abandon_late(5.0) == 0  # rows of the same buffer are still free
    tokens.append(pool.claim(2))
    now = int(23e9)
    assert pool.abandon_late(5.0) == 1  # the one claimed at 20 is not late yet
    assert pool.take() is None
    assert not pool.is_filling(tokens[1])
    now = int(26e9)
    assert pool.abandon_late(5.0) == 1
    buffer, given_up = pool.take()
    assert given_up.tolist() == [False, True, True]
    pool.release(buffer)
    assert pool.status[buffer].tolist() == [FREE, ABANDONED, ABANDONED]
    assert not pool.finish(tokens[1])
    assert pool.status[buffer].tolist() == [FREE, FREE, ABANDONED]


def test_a_writer_that_comes_back_before_the_batch_is_taken_makes_it_incomplete():
    pool = make_pool(buffers=2, tokens_per_buffer=2, groups=2)
    first, second = pool.claim(0), pool.claim(1)
    pool.finish(first)
    assert pool.abandon_late(ALL_LATE) == 1
    assert not pool.finish(second)
    assert pool.take() is None
    assert pool.claim(1) == second
    assert pool.finish(second)
    assert pool.take()[1].tolist() == [False, False]


def test_in_sync_mode_rows_are_open_only_in_the_batch_to_be_learned_next():
    pool = make_pool(buffers=3, tokens_per_buffer=2, groups=3, sync=True)
    assert [pool.claim(group) for group in range(3)] == [0, 1, NONE]
    pool.finish(0)
    pool.finish(1)
    buffer, _ = pool.take()
    assert pool.claim(0) == NONE
    assert pool.release(buffer) == [2, 0]
    assert (pool.granted(2), pool.granted(0)) == (2, 3)


@pytest.mark.parametrize("sync", [False, True])
def test_an_abandoned_row_stays_with_its_writer_over_many_batches(sync):
    pool = make_pool(buffers=2, tokens_per_buffer=2, groups=2, sync=sync)
    slow, fast = pool.claim(0), pool.claim(1)
    pool.finish(fast)
    pool.abandon_late(ALL_LATE)
    seen = []
    for _ in range(6):
        if (taken := pool.take()) is None:
            fast = pool.claim(1)
            assert fast not in (NONE, slow)
            pool.finish(fast)
        else:
            seen.append(taken[1].tolist())
            pool.release(taken[0])
    assert [True, False] in seen
    assert pool.status.flat[slow] == ABANDONED
