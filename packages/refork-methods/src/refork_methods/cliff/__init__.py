"""Cliff tokens: where along a trace success is lost, proven on fresh draws, and trained away."""

from refork.learn.credit.cliff.candidates import candidates, cliff_mass
from refork.learn.credit.cliff.credit import cliff_advantages
from refork.learn.credit.cliff.curve import Curve
from refork.learn.credit.cliff.intervene import contrast, intervene, random_positions
from refork.learn.credit.cliff.pairs import Pair, cliff_pairs
from refork.learn.credit.cliff.scan import nominate, scan, token_potential
from refork.learn.credit.cliff.table import cliff_table
from refork.learn.credit.cliff.verify import Cliff, verify

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
