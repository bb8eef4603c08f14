"""Who may write which rows: the token pool.

A token stands for a block of rows, one row for each lane of a group. The rows of a batch buffer
are the blocks of its tokens. The life of a token:

    FREE --claim--> FILLING --finish--> FINISHED --release (with its whole buffer)--> FREE
                       |
                       +--abandon--> ABANDONED --finish--> FINISHED or FREE

An abandoned token still belongs to its late writer: its rows are delivered masked, and they are
not handed out again before the writer has come back to it (or is known to be dead).

Every change is one small step under a lock that the kernel releases when its holder dies, in an
order that leaves the pool consistent wherever the holder stopped. When no token is free, a group
takes a ticket; tokens that become free go to waiting groups in the order of their tickets.
"""

from __future__ import annotations

import time

import numpy as np

from sampler.shm.arena import Arena, Field
from sampler.shm.lock import ProcessLock
from sampler.shm.ordering import acquire, release

FREE, FILLING, FINISHED, ABANDONED = range(4)
NONE = -1


class TokenPool:
    """Tokens of K buffers. Rollout workers claim and finish them; the learner does the rest."""

    def __init__(self, arena: Arena, lock: ProcessLock, sync: bool = False):
        """With `sync`, only one buffer at a time can be claimed from: the next to be learned."""
        self.lock = lock
        self.sync = sync
        self.status = arena["token_status"]  # [K, tokens per buffer]
        self.owner = arena["token_owner"]  # [K, tokens per buffer], a group
        self.since_ns = arena["token_since_ns"]  # when the status last changed
        self.turn = arena["buffer_turn"]  # [K], order in which buffers are filled
        self.held = arena["buffer_held"]  # [K], the learner is reading it
        self.ticket = arena["group_ticket"]  # [groups], 0: not waiting
        self.grant = arena["group_grant"]  # [groups], token or NONE
        self.next_ticket = arena["next_ticket"]  # [1]
        self._status = self.status.reshape(-1)
        self._owner = self.owner.reshape(-1)
        self._since_ns = self.since_ns.reshape(-1)
        self.buffers, self.tokens_per_buffer = self.status.shape

    @staticmethod
    def fields(buffers: int, tokens_per_buffer: int, groups: int) -> list[Field]:
        int64 = np.dtype(np.int64)
        per_token = (buffers, tokens_per_buffer)
        return [
            Field("token_status", per_token, int64),
            Field("token_owner", per_token, int64),
            Field("token_since_ns", per_token, int64),
            Field("buffer_turn", (buffers,), int64),
            Field("buffer_held", (buffers,), int64),
            Field("group_ticket", (groups,), int64),
            Field("group_grant", (groups,), int64),
            Field("next_ticket", (1,), int64),
        ]

    def reset(self) -> None:
        """Initialise the pool; called once, by the process that makes the arena."""
        self.status[:] = FREE
        self.owner[:] = NONE
        self.turn[:] = np.arange(self.buffers)
        self.held[:] = 0
        self.ticket[:] = 0
        self.grant[:] = NONE
        self.next_ticket[0] = 1

    # ---- rollout workers

    def claim(self, group: int) -> int:
        """A token for `group`, or NONE: the group then waits, and `granted` will return its
        token."""
        with self.lock:
            token = self._next_free()
            if token == NONE:
                self.grant[group] = NONE
                ticket = int(self.next_ticket[0])
                self.next_ticket[0] = ticket + 1
                self.ticket[group] = ticket
            else:
                self._give(token, group)
            return token

    def granted(self, group: int) -> int:
        """The token given to a waiting group since it asked, or NONE."""
        token = int(self.grant[group])
        acquire()  # before its rows are written to
        return token

    def is_filling(self, token: int) -> bool:
        """Whether the token still belongs to its writer; False after it has been given up."""
        return bool(self._status[token] == FILLING)

    def finish(self, token: int) -> bool:
        """Hand the filled rows over. False if they had been given up meanwhile."""
        with self.lock:
            if self._status[token] == FILLING:
                self._since_ns[token] = time.monotonic_ns()
                self._status[token] = FINISHED
                return True
            self._come_back(token)
            return False

    # ---- the learner's process

    def take(self) -> tuple[int, np.ndarray] | None:
        """Take the buffer to be delivered next for reading, and which of its tokens were given up.

        None if there is none: all rows of a buffer must be finished or given up. One in which every
        row was given up is not worth delivering and does not count.
        """
        if self._complete() == NONE:  # without the lock, since this is called often
            return None
        with self.lock:
            buffer = self._complete()  # a late writer may have come back since
            if buffer == NONE:
                return None
            self.held[buffer] = 1
            return buffer, self.status[buffer] == ABANDONED

    def abandon_late(self, timeout: float) -> int:
        """Give up rows that alone keep a buffer waiting for more than `timeout` seconds.

        A buffer is waiting when it has had a finished row for that long and has no free ones.
        Returns how many tokens were given up.
        """
        limit_ns = time.monotonic_ns() - int(timeout * 1e9)
        with self.lock:
            old = self.since_ns < limit_ns
            waiting = ((self.status == FINISHED) & old).any(axis=1, keepdims=True)
            waiting &= (self.status != FREE).all(axis=1, keepdims=True)
            late = waiting & old & (self.status == FILLING)
            self.status[late] = ABANDONED
            return int(late.sum())

    def release(self, buffer: int) -> list[int]:
        """Free the buffer's rows; returns the groups that were waiting and now have a token."""
        with self.lock:
            self.turn[buffer] = self.turn.max() + 1
            self.held[buffer] = 0
            row = self.status[buffer]
            row[row == FINISHED] = FREE
            return self._serve_waiting()

    def reclaim(self, groups: range) -> list[int]:
        """Take back what a dead worker's groups held; returns the groups that now have a token.

        Call it only when neither the worker nor anybody on its behalf can still write.
        """
        with self.lock:
            self.ticket[groups.start : groups.stop] = 0
            self.grant[groups.start : groups.stop] = NONE
            owned = (self._owner >= groups.start) & (self._owner < groups.stop)
            for token in np.flatnonzero(owned & (self._status == FILLING)):
                self._status[token] = FREE
            for token in np.flatnonzero(owned & (self._status == ABANDONED)).tolist():
                self._come_back(token)
            return self._serve_waiting()

    def held_by(self, group: int) -> list[int]:
        """Tokens whose rows this group is filling, or is late with."""
        unfinished = (self._status == FILLING) | (self._status == ABANDONED)
        return np.flatnonzero(unfinished & (self._owner == group)).tolist()

    # ---- inside the lock

    def _complete(self) -> int:
        """The earliest filled buffer of those that can be delivered, or NONE."""
        # FINISHED comes before ABANDONED, and both come after the others.
        whole = (self.status.min(axis=1) == FINISHED) & (self.held == 0)
        candidates = whole.nonzero()[0]
        if not len(candidates):
            return NONE
        return int(candidates[self.turn[candidates].argmin()])

    def _open(self) -> np.ndarray:
        """Which buffers may be claimed from, bool [K]."""
        if not self.sync:
            return self.held == 0
        return (self.turn == self.turn.min()) & (self.held == 0)

    def _next_free(self) -> int:
        free = (self.status == FREE) & self._open()[:, None]
        buffers = free.any(axis=1).nonzero()[0]
        if not len(buffers):
            return NONE
        buffer = int(buffers[self.turn[buffers].argmin()])
        return buffer * self.tokens_per_buffer + int(free[buffer].argmax())

    def _give(self, token: int, group: int) -> None:
        self._owner[token] = group
        self._since_ns[token] = time.monotonic_ns()
        self._status[token] = FILLING

    def _come_back(self, token: int) -> None:
        """The writer of an abandoned token is done with it."""
        held = self.held[token // self.tokens_per_buffer]
        self._status[token] = FINISHED if held else FREE

    def _serve_waiting(self) -> list[int]:
        served = []
        release()  # a grant is read without the lock, so the rows must be seen as free before
        waiting = np.flatnonzero(self.ticket)
        for group in waiting[np.argsort(self.ticket[waiting])].tolist():
            token = self._next_free()
            if token == NONE:
                break
            self._give(token, group)
            self.ticket[group] = 0
            self.grant[group] = token
            served.append(group)
        return served
