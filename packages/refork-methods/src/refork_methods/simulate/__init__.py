"""A language world model: a model that answers as environments do, trained, measured and acted in.

Source: arXiv 2606.24597.
"""

from refork.learn.simulate.asked import Asked, Prediction
from refork.learn.simulate.compare import compare_simulators
from refork.learn.simulate.control.base import Control, Controls
from refork.learn.simulate.control.fictional import Fictional
from refork.learn.simulate.control.perturb import Perturb
from refork.learn.simulate.control.stingy import Stingy
from refork.learn.simulate.drift import alarms, drift_rate
from refork.learn.simulate.evaluate import evaluate
from refork.learn.simulate.extract import extract_prediction
from refork.learn.simulate.leak import leak_rate, tree_leaks
from refork.learn.simulate.reward import HybridReward, Rubric
from refork.learn.simulate.rubric import RubricJudge
from refork.learn.simulate.rule_rubric import RuleRubric
from refork.learn.simulate.simulated_world import SimulatedWorld
from refork.learn.simulate.simulator import LearnedSimulator
from refork.learn.simulate.transfer import sim_to_real, success_ratio
from refork.learn.simulate.turn_stats import Thresholds, classify, loss_weights, turn_stats
from refork.learn.simulate.world import WorldModel

__all__ = [
    "Asked",
    "Control",
    "Controls",
    "Fictional",
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
    "alarms",
    "classify",
    "compare_simulators",
    "drift_rate",
    "evaluate",
    "extract_prediction",
    "leak_rate",
    "loss_weights",
    "sim_to_real",
    "success_ratio",
    "tree_leaks",
    "turn_stats",
]
