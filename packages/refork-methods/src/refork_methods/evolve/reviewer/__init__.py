"""A real use without any model: reviewers of reports, biased, trapped, and trained anew by scikit-learn."""

from refork_methods.evolve.reviewer.outcome import ReviewOutcome, measure, measure_reviewer
from refork_methods.evolve.reviewer.shop import ReviewWorld
from refork_methods.evolve.reviewer.world import SETTINGS, evolve, open_world

__all__ = [
    "SETTINGS",
    "ReviewOutcome",
    "ReviewWorld",
    "evolve",
    "measure",
    "measure_reviewer",
    "open_world",
]
