"""A language world model: a model that answers as environments do, trained, measured and acted in.

Source: arXiv 2606.24597.
"""

from refork_methods.simulate.control.base import Control, Controls
from refork_methods.simulate.control.perturb import Perturb
from refork_methods.simulate.control.stingy import Stingy
from refork_methods.simulate.data import Thresholds, classify, loss_weights, turn_stats
from refork_methods.simulate.evaluate import evaluate
from refork_methods.simulate.fidelity import compare_simulators
from refork_methods.simulate.leak import leak_rate, tree_leaks
from refork_methods.simulate.prompt import Asked, Prediction, extract_prediction
from refork_methods.simulate.reward import HybridReward, Rubric
from refork_methods.simulate.rubric import RubricJudge, RuleRubric
from refork_methods.simulate.transfer import sim_to_real, success_ratio
from refork_methods.simulate.world import LearnedSimulator, SimulatedWorld, WorldModel

__all__ = [
    "Asked",
    "Control",
    "Controls",
    "HybridReward",
    "LearnedSimulator",
    "Perturb",
    "Prediction",
    "Rubric",
    "RubricJudge",
    "RuleRubric",
    "SimulatedWorld",
    "Stingy",
    "Thresholds",
    "WorldModel",
    "classify",
    "compare_simulators",
    "evaluate",
    "extract_prediction",
    "leak_rate",
    "loss_weights",
    "sim_to_real",
    "success_ratio",
    "tree_leaks",
    "turn_stats",
]
