"""Which point to fork next."""

from refork.growing.allocator import AdaptiveBudgetAllocator
from refork.growing.growing import Budget, Logged
from refork.growing.plant import opening, plant, plant_prompt
from refork.growing.points import candidates
from refork.growing.rollouts import Group, grow, grow_trees
from refork.growing.selector import (
    EVERY,
    Candidates,
    ForkChoice,
    Independent,
    Needs,
    PointValues,
    RandomNode,
    Selector,
    Surprisal,
)
from refork.growing.speculate import Speculation
from refork.growing.uucb import UUCB

__all__ = [
    "EVERY",
    "UUCB",
    "AdaptiveBudgetAllocator",
    "Budget",
    "Candidates",
    "ForkChoice",
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
