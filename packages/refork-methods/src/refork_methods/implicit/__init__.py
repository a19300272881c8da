"""Implicit advantage: the step grader that post-training leaves behind, beta * log(policy / reference)."""

from refork.learn.credit.implicit.aggregate import PairLogprobs, step_advantages, trajectory_score
from refork.learn.credit.implicit.attribute import decisive_step
from refork.learn.credit.implicit.choose import best_of
from refork.learn.credit.implicit.on_tree import implicit_advantages
from refork.learn.credit.implicit.predict import predict_success
from refork.learn.credit.implicit.soft_values import soft_value_iteration

__all__ = [
    "PairLogprobs",
    "best_of",
    "decisive_step",
    "implicit_advantages",
    "predict_success",
    "soft_value_iteration",
    "step_advantages",
    "trajectory_score",
]
