"""One rollout worker: steps its groups of lanes in turn and writes what happens into rows.

A group is always in one of two states. It waits for rows (all are taken: that is the
back-pressure), or it waits for the policy worker to choose its next actions. While one group
waits, another is stepped, so with two groups and fast inference the worker never sleeps.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from sampler.process.bell import Bell
from sampler.rollout_worker import rows
from sampler.rollout_worker.group import Group
from sampler.rollout_worker.lanes import Lanes
from sampler.rollout_worker.values import ValueCheck
from sampler.shm.counters import Stage
from sampler.shm.shared import Shared
from sampler.shm.tokens import NONE
from sampler.spaces import leaves

LONGEST_SLEEP = 1.0  # seconds after which a worker looks around, though no bell rang


class RolloutWorker:
    """All groups of one worker, and the loop that serves them."""

    def __init__(
        self,
        index: int,
        shared: Shared,
        bell: Bell,
        policy_bell: Bell,
        learner_bell: Bell,
        lanes: list[Lanes],
        observation_space: Any,
        frame_skip: int,
        environment: str,
    ):
        """`lanes`: one entry per group; `observation_space`: of one environment; `environment`: its
        name in warnings."""
        self.index = index
        self.shared = shared
        self.bell, self.policy_bell, self.learner_bell = bell, policy_bell, learner_bell
        self.counters = shared.counters.rollout[index]
        self.control = shared.counters.learner
        self.frame_skip = frame_skip
        values = ValueCheck(leaves(observation_space, "obs"), environment)
        self.groups = [
            Group(group, group_lanes, shared, values)
            for group, group_lanes in zip(shared.topology.groups_of(index), lanes, strict=True)
        ]
        self._stopping = self.control.index["stop"]
        self._pausing = self.control.index["pause"]

    def start(self) -> None:
        """Reset every lane and ask for the first rows."""
        for group in self.groups:
            group.start()
        self.counters["ready"] = 1
        self.learner_bell.ring()
        for group in self.groups:
            self._claim(group)

    def run(self, serve: Callable[[], bool] = lambda: False) -> None:
        """Work until the sampler stops.

        `serve` answers the requests where that is done in this process; False if there are none.
        """
        # Rewards beyond float32 become infinite, which the check of full rows reports.
        warnings.filterwarnings("ignore", "overflow encountered in cast", module=rows.__name__)
        self.start()
        words = self.control.words
        while not words[self._stopping]:
            if words[self._pausing]:
                self.counters.enter(Stage.PAUSED)
                self.bell.wait(LONGEST_SLEEP)
            elif not self.advance() and not serve():
                self.sleep()

    def advance(self) -> bool:
        """Do everything that can be done without waiting; False if that was nothing."""
        advanced = False
        for group in self.groups:
            if group.token == NONE:
                if group.look_for_rows():
                    self._ask(group)
                    advanced = True
            elif group.request.answered:
                self._step(group)
                advanced = True
            elif group.request.refused:
                self.counters.add("lost_steps", group.restart_rows())
                self._ask(group)
                advanced = True
        return advanced

    def sleep(self) -> None:
        """Wait for the bell, and account for what was waited for."""
        for_rows = all(group.token == NONE for group in self.groups)
        stage = Stage.WAITING_FOR_ROWS if for_rows else Stage.WAITING
        began = self.counters.enter(stage)
        self.bell.wait(LONGEST_SLEEP)
        waited = time.monotonic_ns() - began
        self.counters.add("token_wait_ns" if for_rows else "wait_ns", waited)

    def _ask(self, group: Group) -> None:
        group.ask()
        self.policy_bell.ring()

    def _claim(self, group: Group) -> None:
        if group.claim():
            self._ask(group)

    def _step(self, group: Group) -> None:
        counters = self.counters
        began = counters.enter(Stage.STEPPING)
        result = group.advance()
        counters.add("step_ns", time.monotonic_ns() - began)
        steps = len(group.lane_ids) - len(result.resets)
        counters.add("steps", steps)
        counters.add("frames", steps * self.frame_skip)
        if result.resets:
            counters.add("masked_steps", len(result.resets))
        if result.ended:
            counters.add("episodes", len(result.ended))
        for lane, score, length in group.finished_games(result):
            frames = length * self.frame_skip
            self.shared.episodes.put(self.index, group.lane_ids[lane], score, length, frames)
        if group.step == self.shared.spec.steps:
            self._finish(group)
        elif self.shared.tokens.is_filling(group.token):
            self._ask(group)
        else:
            self._give_up(group)

    def _finish(self, group: Group) -> None:
        if not group.finish():
            self.counters.add("lost_steps", group.real_steps)
        self.learner_bell.ring()
        self._claim(group)

    def _give_up(self, group: Group) -> None:
        """The learner no longer waits for these rows: go on in new ones from here."""
        self.counters.add("lost_steps", group.cut())
        self.shared.tokens.finish(group.token)
        self._claim(group)

    def close(self) -> None:
        for group in self.groups:
            group.lanes.close()
