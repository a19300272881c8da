"""When to verify, refine, ship or stop: a belief about the candidate, and the price of every check."""

from refork_methods.gate.controller import BayesController
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices, read_policy, write_policy
from refork_methods.gate.policy import Choice, Policy, State
from refork_methods.gate.regimes import compare_rules, regime_map, sensitivity
from refork_methods.gate.rules import every_rule, simple_rules

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
