"""Cliff tokens: where along a trace success is lost, proven on fresh draws, and trained away."""

from refork_methods.cliff.candidates import candidates, cliff_mass
from refork_methods.cliff.credit import cliff_advantages
from refork_methods.cliff.curve import Curve
from refork_methods.cliff.intervene import contrast, intervene, random_positions
from refork_methods.cliff.pairs import Pair, cliff_pairs
from refork_methods.cliff.scan import nominate, scan, token_potential
from refork_methods.cliff.table import cliff_table
from refork_methods.cliff.verify import Cliff, verify

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
