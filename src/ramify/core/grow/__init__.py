"""Which point to fork next."""

from ramify.core.grow.plant import opening, plant, plant_prompt
from ramify.core.grow.rollouts import Group, Logged, candidates, grow, grow_trees
from ramify.core.grow.selector import Candidates, Choice, Independent, RandomNode, Selector

__all__ = [
    "Candidates",
    "Choice",
    "Group",
    "Independent",
    "Logged",
    "RandomNode",
    "Selector",
    "candidates",
    "grow",
    "grow_trees",
    "opening",
    "plant",
    "plant_prompt",
]
