"""Evaluation: how well a model plays, apart from training."""

from sampler.evaluation.evaluator import evaluate
from sampler.evaluation.games import Evaluation
from sampler.evaluation.player import EPSILON, Decision

__all__ = ["EPSILON", "Decision", "Evaluation", "evaluate"]
