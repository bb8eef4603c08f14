"""Replay: prioritised sequences (R2D2) and n-step transitions (Ape-X, DQN) on the same rows."""

from sampler.learner.replay.hindsight import Hindsight
from sampler.learner.replay.priorities import Priorities
from sampler.learner.replay.row_storage import RowStorage
from sampler.learner.replay.sequence_replay import (
    SequenceReplay,
    capacity_in_rows,
    row_fields,
    sequence_priority,
)
from sampler.learner.replay.sum_tree import MinTree, SumTree
from sampler.learner.replay.transition_replay import TransitionReplay
from sampler.learner.replay.transitions import Transitions, transitions

__all__ = [
    "Hindsight",
    "MinTree",
    "Priorities",
    "RowStorage",
    "SequenceReplay",
    "SumTree",
    "TransitionReplay",
    "Transitions",
    "capacity_in_rows",
    "row_fields",
    "sequence_priority",
    "transitions",
]
