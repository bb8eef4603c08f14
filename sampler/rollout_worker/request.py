"""A group's request for actions, as its rollout worker sees it."""

from __future__ import annotations

from sampler.shm.arena import scalars
from sampler.shm.ordering import acquire, release
from sampler.shm.shared import Shared
from sampler.shm.signals import ANSWERED, ASKED, REFUSED, ROW, STEP, TOKEN


class Request:
    """The words of one group's request: written here, and answered by the policy worker."""

    def __init__(self, shared: Shared, group: int):
        self._words = scalars(shared.requests[group])
        self.synchronize()

    def synchronize(self) -> None:
        """Continue from the number in shared memory."""
        self._asked = self._words[ASKED]

    def begin(self, token: int, step: int, row: int) -> None:
        """Write down which rows the next requests are about, before the first of them.

        step: the first step to ask for; row: rows begun since the lanes' state was last lost.
        """
        self._words[STEP] = step
        self._words[TOKEN] = token
        self._words[ROW] = row

    def ask(self, step: int) -> None:
        """Publish the request for the actions of `step`; the caller rings the bell."""
        self._asked += 1
        self._words[STEP] = step
        release()  # write the step and its observations before the number that announces them
        self._words[ASKED] = self._asked

    @property
    def answered(self) -> bool:
        """Whether the actions are in the rows."""
        if self._words[ANSWERED] != self._asked:
            return False
        acquire()  # read the number before the actions that it announces
        return True

    @property
    def refused(self) -> bool:
        """Whether the policy worker has lost the recurrent state that these rows go on from."""
        return self._words[REFUSED] == self._asked
