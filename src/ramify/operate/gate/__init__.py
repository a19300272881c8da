"""When to verify, refine, ship or stop: a belief about the candidate, and the price of every check."""

from ramify.operate.gate.belief import State
from ramify.operate.gate.controller import BayesController
from ramify.operate.gate.model import Critic, CriticModel, Kernel, Prices, read_policy, write_policy
from ramify.operate.gate.policy import Choice, Policy
from ramify.operate.gate.regimes import compare_rules, regime_map
from ramify.operate.gate.rules import every_rule, simple_rules
from ramify.operate.gate.sensitivity import sensitivity

__all__ = [
    "BayesController",
    "Choice",
    "Critic",
    "CriticModel",
    "Kernel",
    "Policy",
    "Prices",
    "State",
    "compare_rules",
    "every_rule",
    "read_policy",
    "regime_map",
    "sensitivity",
    "simple_rules",
    "write_policy",
]
