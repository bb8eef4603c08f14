"""One rollout worker: steps its groups of lanes in turn and writes what happens into rows.

A group is always in one of two states. It waits for rows (all are taken: that is the
back-pressure), or it waits for the policy worker to choose its next actions. While one group
waits, another is stepped, so with two groups and fast inference the worker never sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sampler.process.bell import Bell
from sampler.rollout_worker.group import Group
from sampler.rollout_worker.lanes import Lanes
from sampler.rollout_worker.likeness import LikenessCheck
from sampler.rollout_worker.observations import ObservationWriter
from sampler.shm.counters import Stage
from sampler.shm.shared import Shared
from sampler.shm.tokens import NONE

NAP = 1.0  # seconds after which a sleeping worker looks around, though no bell rang


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
    ):
        """`lanes`: one entry per group; `observation_space`: of one environment."""
        self.index = index
        self.shared = shared
        self.bell, self.policy_bell, self.learner_bell = bell, policy_bell, learner_bell
        self.counters = shared.counters.rollout[index]
        self.control = shared.counters.learner
        self.frame_skip = frame_skip
        writer = ObservationWriter(observation_space)
        self.groups = [
            Group(group, group_lanes, shared, writer)
            for group, group_lanes in zip(shared.topology.groups_of(index), lanes, strict=True)
        ]
        if index == 0 and len({seed for group_lanes in lanes for seed in group_lanes.seeds}) > 1:
            lane_count = sum(len(group.lane_ids) for group in self.groups)
            likeness = LikenessCheck(shared.spec, lane_count)
            for group in self.groups:
                group.likeness = likeness
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
        self.start()
        words = self.control.words
        while not words[self._stopping]:
            if words[self._pausing]:
                self.counters.enter(Stage.PAUSED)
                self.bell.wait(NAP)
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
            elif group.answered:
                self._step(group)
                advanced = True
            elif group.refused:
                self.counters.add("lost_steps", group.restart_rows())
                self._ask(group)
                advanced = True
        return advanced

    def sleep(self) -> None:
        """Wait for the bell, and account for what was waited for."""
        for_rows = all(group.token == NONE for group in self.groups)
        stage = Stage.WAITING_FOR_ROWS if for_rows else Stage.WAITING
        began = self.counters.enter(stage)
        self.bell.wait(NAP)
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
        masked = result.masked_steps
        steps = len(group.lane_ids) - masked
        counters.add("steps", steps)
        counters.add("frames", steps * self.frame_skip)
        if masked:
            counters.add("masked_steps", masked)
        for lane, reward, game_over in result.reset_games:
            self._report(group, lane, group.reset_game(lane, reward, game_over), game_over)
        for lane, _, _, game_over in result.ended:
            counters.add("episodes", 1)
            self._report(group, lane, group.end_episode(lane, game_over), game_over)
        for lane, reward, game_over in result.began:
            group.begin_episode(lane)
            self._report(group, lane, group.reset_game(lane, reward, game_over), game_over)
        if group.step == self.shared.spec.steps:
            self._finish(group)
        elif self.shared.tokens.is_filling(group.token):
            self._ask(group)
        else:
            self._give_up(group)

    def _report(self, group: Group, lane: int, game: tuple[float, int], game_over: bool) -> None:
        if game_over:
            score, length = game
            frames = length * self.frame_skip
            self.shared.episodes.put(self.index, group.lane_ids[lane], score, length, frames)

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
