"""Which point to fork next."""

from ramify.core.grow.allocator import AdaptiveBudgetAllocator
from ramify.core.grow.growing import Budget, Logged
from ramify.core.grow.plant import opening, plant, plant_prompt
from ramify.core.grow.points import candidates
from ramify.core.grow.rollouts import Group, grow, grow_trees
from ramify.core.grow.selector import (
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
from ramify.core.grow.speculate import Speculation
from ramify.core.grow.uucb import UUCB

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
