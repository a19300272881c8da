"""Which point to fork next."""

from refork.core.grow.allocator import AdaptiveBudgetAllocator
from refork.core.grow.growing import Budget, Logged
from refork.core.grow.plant import opening, plant, plant_prompt
from refork.core.grow.points import candidates
from refork.core.grow.rollouts import Group, grow, grow_trees
from refork.core.grow.selector import (
    EVERY,
    Candidates,
    Choice,
    Independent,
    Needs,
    PointValues,
    RandomNode,
    Selector,
    Surprisal,
)
from refork.core.grow.speculate import Speculation
from refork.core.grow.uucb import UUCB

__all__ = [
    "EVERY",
    "UUCB",
    "AdaptiveBudgetAllocator",
    "Budget",
    "Candidates",
    "Choice",
    "Group",
    "Independent",
    "Logged",
    "Needs",
    "PointValues",
    "RandomNode",
    "Selector",
    "Speculation",
    "Surprisal",
    "candidates",
    "grow",
    "grow_trees",
    "opening",
    "plant",
    "plant_prompt",
]
