"""One rollout worker: steps its groups of lanes in turn and writes what happens into rows.

A group is always in one of two states. It waits for rows (when all are taken, this is the
back-pressure), or it waits for the policy worker to choose its next actions. While one group waits,
another is stepped, so with two groups and fast inference the worker never sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sampler.rollout_worker.group import Group
from sampler.rollout_worker.lanes import Lanes, StepResult
from sampler.rollout_worker.likeness import LikenessCheck
from sampler.rollout_worker.values import ValueCheck
from sampler.shm.control import PAUSE, STOP
from sampler.shm.counters import Stage
from sampler.shm.tokens import NONE
from sampler.spaces import leaves
from sampler.worker.context import WorkerContext

WAKE_INTERVAL = 1.0  # seconds after which a sleeping worker checks for work, though no bell rang


class RolloutWorker:
    """All groups of one worker, and the loop that serves them."""

    def __init__(self, context: WorkerContext, lanes: list[Lanes]):
        """`lanes`: one entry per group."""
        self.index = context.index
        self.shared = shared = context.shared
        self.bell, self.learner_bell = context.bell, context.learner_bell
        self.policy_bell = context.peer_bells[shared.topology.policy_of(self.index)]
        self.counters = shared.counters.rollout[self.index]
        self.frame_skip = context.facts.frame_skip
        observations = leaves(context.facts.observation_space, "obs")
        values = ValueCheck(observations, context.config.env_name)
        self.groups = [
            Group(group, group_lanes, shared, values)
            for group, group_lanes in zip(shared.topology.groups_of(self.index), lanes, strict=True)
        ]
        self.infos = lanes[0].infos
        if self.index == 0 and len({seed for group in lanes for seed in group.seeds}) > 1:
            likeness = LikenessCheck(shared.spec, sum(len(group.lane_ids) for group in self.groups))
            for group in self.groups:
                group.likeness = likeness

    def start(self) -> None:
        """Reset every lane and ask for the first rows."""
        for group in self.groups:
            group.start()
        self.shared.control.workers[self.index]["ready"] = 1
        self.learner_bell.ring()
        for group in self.groups:
            self._claim(group)

    def run(self, serve: Callable[[], bool] = lambda: False) -> None:
        """Work until the sampler stops.

        `serve` answers requests, if this process does that itself; it returns False if there are
        none.
        """
        self.start()
        words = self.shared.control.words
        while not words[STOP]:
            if words[PAUSE]:
                self.counters.enter(Stage.PAUSED)
                self.bell.wait(WAKE_INTERVAL)
            elif not self.advance() and not serve():
                self.sleep()

    def advance(self) -> bool:
        """Do everything that can be done without waiting; False if there was nothing to do."""
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
        """Wait for the bell, and count the time for whatever was waited for."""
        for_rows = all(group.token == NONE for group in self.groups)
        stage = Stage.WAITING_FOR_ROWS if for_rows else Stage.WAITING
        began = self.counters.enter(stage)
        self.bell.wait(WAKE_INTERVAL)
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
        steps = len(group.lane_ids)
        if result.ended or result.resets:
            steps -= result.masked_steps
            self._report(group, result)
        counters.add("steps", steps)
        counters.add("frames", steps * self.frame_skip)
        if group.step == self.shared.spec.steps:
            self._finish(group)
        elif self.shared.tokens.is_filling(group.token):
            self._ask(group)
        else:
            self._give_up(group)

    def _report(self, group: Group, result: StepResult) -> None:
        """Count and report the episodes and whole games that ended in a group's step."""
        if self.infos is not None:
            self.infos.flush()
        self.counters.add("masked_steps", result.masked_steps)
        self.counters.add("episodes", len(result.ended))
        for lane, score, length in group.finished_games(result):
            frames = length * self.frame_skip
            self.shared.episodes.put(self.index, group.lane_ids[lane], score, length, frames)
        for lane, *_ in result.began:
            group.begin_episode(lane)

    def _finish(self, group: Group) -> None:
        if self.infos is not None:
            self.infos.flush()
        if not group.finish():
            self.counters.add("lost_steps", group.real_steps)
        self.learner_bell.ring()
        self._claim(group)

    def _give_up(self, group: Group) -> None:
        """The learner no longer waits for these rows: continue in new ones from here."""
        self.counters.add("lost_steps", group.cut())
        self.shared.tokens.finish(group.token)
        self._claim(group)

    def close(self) -> None:
        for group in self.groups:
            group.lanes.close()
