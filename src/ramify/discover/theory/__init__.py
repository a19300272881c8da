"""Theories of choice that can be run, scored on people's choices by priors alone, and told apart.

Source: arXiv:2606.26448.
"""

from ramify.discover.theory.chooser import Chooser, Rule
from ramify.discover.theory.gate import GateResult, Proposal, first_admitted, gate
from ramify.discover.theory.metrics import Metric, lag_one, measure, mse_pb, pearson
from ramify.discover.theory.predictive import Scoreboard, score_theories
from ramify.discover.theory.read import read_csv_trials, read_human_choices
from ramify.discover.theory.sandboxed import SandboxedTheory, check_theory
from ramify.discover.theory.simulate import predicted_rates, simulate
from ramify.discover.theory.theory_file import Theory
from ramify.discover.theory.trials import Observation, Trials

__all__ = [
    "Chooser",
    "GateResult",
    "Metric",
    "Observation",
    "Proposal",
    "Rule",
    "SandboxedTheory",
    "Scoreboard",
    "Theory",
    "Trials",
    "check_theory",
    "first_admitted",
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
