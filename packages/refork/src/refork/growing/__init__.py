"""Which point to fork next."""

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
from refork.growing.uucb import UUCB

__all__ = [
    "EVERY",
    "UUCB",
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
    "Surprisal",
    "candidates",
    "grow",
    "grow_trees",
    "opening",
    "plant",
    "plant_prompt",
]
