"""Implicit advantage: the step grader that post-training leaves behind, beta * log(policy / reference)."""

from refork_methods.implicit.aggregate import PairLogprobs, step_advantages, trajectory_score
from refork_methods.implicit.attribute import decisive_step
from refork_methods.implicit.choose import best_of
from refork_methods.implicit.on_tree import implicit_advantages
from refork_methods.implicit.predict import predict_success
from refork_methods.implicit.soft_values import soft_value_iteration

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
