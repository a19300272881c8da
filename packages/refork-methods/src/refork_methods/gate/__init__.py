"""When to verify, refine, ship or stop: a belief about the candidate, and the price of every check."""

from refork.operate.gate.belief import State
from refork.operate.gate.controller import BayesController
from refork.operate.gate.model import Critic, CriticModel, Kernel, Prices, read_policy, write_policy
from refork.operate.gate.policy import Choice, Policy
from refork.operate.gate.regimes import compare_rules, regime_map
from refork.operate.gate.rules import every_rule, simple_rules
from refork.operate.gate.sensitivity import sensitivity

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
