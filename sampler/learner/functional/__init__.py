"""What learners compute: actions under a model, targets, losses, normalization, schedules,
optimisers."""

from sampler.models.action_evaluation import ActionEvaluation, evaluate_actions

__all__ = ["ActionEvaluation", "evaluate_actions"]
