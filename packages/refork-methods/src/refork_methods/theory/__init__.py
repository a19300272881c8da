"""Theories of choice that can be run, scored on people's choices by priors alone, and told apart.

Source: arXiv:2606.26448.
"""

from refork_methods.theory.chooser import Chooser, Rule
from refork_methods.theory.gate import GateResult, gate
from refork_methods.theory.metrics import Metric, lag_one, measure, mse_pb, pearson
from refork_methods.theory.predictive import Scoreboard, score_theories
from refork_methods.theory.read import read_csv_trials, read_human_choices
from refork_methods.theory.sandboxed import SandboxedTheory, check_theory
from refork_methods.theory.simulate import predicted_rates, simulate
from refork_methods.theory.theory_file import Theory
from refork_methods.theory.trials import Observation, Trials

__all__ = [
    "Chooser",
    "GateResult",
    "Metric",
    "Observation",
    "Rule",
    "SandboxedTheory",
    "Scoreboard",
    "Theory",
    "Trials",
    "check_theory",
    "gate",
    "lag_one",
    "measure",
    "mse_pb",
    "pearson",
    "predicted_rates",
    "read_csv_trials",
    "read_human_choices",
    "score_theories",
    "simulate",
]
