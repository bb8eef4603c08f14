"""Replay: prioritised sequences (R2D2) and n-step transitions (Ape-X, DQN) on the same rows."""

from sampler.learner.her import Hindsight
from sampler.learner.priorities import Priorities
from sampler.learner.row_storage import RowStorage
from sampler.learner.sequence_replay import (
    SequenceReplay,
    capacity_in_rows,
    row_fields,
    sequence_priority,
)
from sampler.learner.sum_tree import MinTree, SumTree
from sampler.learner.transition_replay import TransitionReplay

__all__ = [
    "Hindsight",
    "MinTree",
    "Priorities",
    "RowStorage",
    "SequenceReplay",
    "SumTree",
    "TransitionReplay",
    "capacity_in_rows",
    "row_fields",
    "sequence_priority",
]
