"""Evaluation: how well a model plays, apart from training."""

from sampler.evaluation.evaluator import EvaluationProgress, evaluate
from sampler.evaluation.games import Evaluation
from sampler.evaluation.player import EPSILON, Decision

__all__ = ["EPSILON", "Decision", "Evaluation", "EvaluationProgress", "evaluate"]
