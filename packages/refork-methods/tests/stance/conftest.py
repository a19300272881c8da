from __future__ import annotations

import pytest

from refork.growing.plant import plant
from refork.policies.base import Sampling
from refork.tree.tree import Tree
from refork_methods.stance.guards import panel_of
from refork_methods.stance.marker import marker_of
from refork_methods.stance.prompts import draw_rollouts, recorded_cases
from refork_testbed.worlds.refusal.world import refusal_world


def refuses(text):
    return "refuse" in text.split()


class Planted:
    """A planted world with rollouts on a tree."""

    def __init__(self, rule, prompts, draws, *, tree=None, seed=0, **numbers):
        self.world = refusal_world(rule, **numbers)
        self.policy = self.world.policy()
        self.tree = tree or Tree.memory()
        self.tasks = self.world.tasks("held-out", prompts, seed)
        plant(self.tree, self.policy, self.world, self.tasks)
        self.cases = recorded_cases(self.tree)
        self.marker = marker_of(self.policy, " >>", "<<")
        self.panel = panel_of(refuses)
        draw_rollouts(self.cases, self.policy, draws, Sampling(max_tokens=32), seed=seed)


@pytest.fixture
def planted():
    return Planted
