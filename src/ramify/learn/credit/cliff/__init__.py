"""Cliff tokens: where along a trace success is lost, proven on fresh draws, and trained away."""

from ramify.learn.credit.cliff.candidates import candidates, cliff_mass
from ramify.learn.credit.cliff.credit import cliff_advantages
from ramify.learn.credit.cliff.curve import Curve
from ramify.learn.credit.cliff.intervene import contrast, intervene, random_positions
from ramify.learn.credit.cliff.pairs import Pair, cliff_pairs
from ramify.learn.credit.cliff.scan import nominate, scan, token_potential
from ramify.learn.credit.cliff.table import cliff_table
from ramify.learn.credit.cliff.verify import Cliff, verify

__all__ = [
    "Cliff",
    "Curve",
    "Pair",
    "candidates",
    "cliff_advantages",
    "cliff_mass",
    "cliff_pairs",
    "cliff_table",
    "contrast",
    "intervene",
    "nominate",
    "random_positions",
    "scan",
    "token_potential",
    "verify",
]
