"""Evaluation: how well a model plays, apart from training."""

from sampler.evaluation.evaluator import EvaluationProgress, evaluate
from sampler.evaluation.games import MAX_GAME_STEPS, Evaluation
from sampler.evaluation.player import EPSILON, Decision

__all__ = [
    "EPSILON",
    "MAX_GAME_STEPS",
    "Decision",
    "Evaluation",
    "EvaluationProgress",
    "evaluate",
]
