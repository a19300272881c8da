"""A real use without any model: reviewers of reports, biased, trapped, and trained anew by scikit-learn."""

from refork.discover.evolve.reviewer.outcome import ReviewOutcome, measure, measure_reviewer
from refork.discover.evolve.reviewer.shop import ReviewWorld
from refork.discover.evolve.reviewer.world import SETTINGS, evolve, open_world

__all__ = [
    "SETTINGS",
    "ReviewOutcome",
    "ReviewWorld",
    "evolve",
    "measure",
    "measure_reviewer",
    "open_world",
]
