"""One experiment through all of learning: selectors and credits side by side at equal token budgets."""

from refork_methods.compare.recipe import CompareRecipe, places_named
from refork_methods.compare.run import run_compare
from refork_methods.compare.table import Curve, Row, compare_arms, mean_curve, tokens_to_level

__all__ = [
    "CompareRecipe",
    "Curve",
    "Row",
    "compare_arms",
    "mean_curve",
    "places_named",
    "run_compare",
    "tokens_to_level",
]
