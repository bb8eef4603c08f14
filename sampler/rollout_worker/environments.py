"""The environments of a rollout worker, made and seeded."""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack
from typing import Any

import numpy as np

from sampler import seeds
from sampler.envs import make
from sampler.rollout_worker.info_reader import InfoReader
from sampler.rollout_worker.lanes import Lanes, close
from sampler.rollout_worker.probe import check_spaces
from sampler.rollout_worker.replayable import ReplayableEnvLanes, ReplayableVectorLanes
from sampler.rollout_worker.separate_lanes import EnvLanes
from sampler.rollout_worker.vector_lanes import VectorLanes
from sampler.worker.context import WorkerContext


def make_lanes(context: WorkerContext) -> list[Lanes]:
    """The environments of a worker: one `Lanes` for each of its groups."""
    config, facts, shared = context.config, context.facts, context.shared
    worker, restarts = context.index, context.restarts
    if not config.serial:  # in serial mode the global generators belong to the caller
        same = 0 if config.identical_lanes else worker
        seed_global_generators(seeds.integer(config.seed, seeds.GLOBAL, same, restarts))
    counters = shared.counters.rollout[worker]
    position = counters.index["lane"]
    heartbeat = counters.words[position : position + 1]
    groups: list[Lanes] = []

    def lane_seed(lane: int, *again: int) -> int:
        """`again`: how often the lane was seeded before, if at all."""
        first = 0 if config.identical_lanes else lane
        return seeds.integer(config.seed, seeds.LANE, first, restarts, *again)

    with ExitStack() as opened:  # closes what was made if the rest fails
        for group in shared.topology.groups_of(worker):
            lanes = shared.topology.lanes_of_group(group)
            lane_seeds = [lane_seed(lane) for lane in lanes]
            made: list[Any] = []
            for lane in range(1 if facts.vector_lanes else len(lanes)):
                heartbeat[0] = lanes[lane]
                made.append(make(config.env, **config.env_kwargs))
                opened.callback(close, made[-1])
                check_spaces(made[-1], facts)
            where = lane_seeds, heartbeat, lanes.start
            masked = facts.action_mask_size > 0
            if facts.vector_lanes:
                kind = ReplayableVectorLanes if config.serial else VectorLanes
                groups.append(kind(made[0], *where, facts.autoreset))
            elif config.serial:
                groups.append(ReplayableEnvLanes(made, *where, masked, lane_seed))
            else:
                groups.append(EnvLanes(made, *where, masked))
        opened.pop_all()
    if shared.infos is not None:
        infos = InfoReader(config.parsed_info_keys, shared.infos, worker)
        for made_lanes in groups:
            made_lanes.infos = infos
    return groups


def seed_global_generators(seed: int) -> None:
    """Seed this process's global random generators, which environments may draw from.

    Workers are forked from one process and would otherwise all begin with the same state. torch is
    seeded if something has loaded it.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
