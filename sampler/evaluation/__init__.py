"""Evaluation: how well a model plays, apart from training."""

from sampler.evaluation.games import EPSILON, Decision, Evaluation, evaluate

__all__ = ["EPSILON", "Decision", "Evaluation", "evaluate"]
