"""One experiment through all of learning: selectors and credits side by side at equal token budgets."""

from refork.learn.compare.recipe import CompareRecipe, places_named
from refork.learn.compare.run import run_compare
from refork.learn.compare.table import Curve, Row, compare_arms, mean_curve, tokens_to_level

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
