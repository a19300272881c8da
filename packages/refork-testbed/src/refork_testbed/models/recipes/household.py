"""``household``, ``household-novice``: fetch and deliver in a small house, as shown by one who errs.

The demonstrator knows the whole house; the organism sees one room at a time. So it learns to act well
where it can see and to guess where it cannot, and it copies the demonstrator's mistakes: there is much to
find and to improve. The novice had half of the lessons, and has most of the learning to come.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from refork.policies.base import Sampling
from refork.worlds.expert import demonstrate
from refork_methods.train.sft import SftSettings
from refork_testbed.models.demonstrations import as_conversation
from refork_testbed.models.recipe import Conversation, Recipe, Shape
from refork_testbed.worlds.household.build import household_world

EPISODES = 4000
MISTAKES = 0.15
SIZE = 2
#: What the novice was shown of the same demonstrations.
FIRST = 1500


def conversations() -> list[Conversation]:
    """Demonstrated episodes of training tasks, good and bad."""
    world = household_world(SIZE)
    rng = np.random.default_rng(21)
    return [
        as_conversation(demonstrate(world, task, rng, mistakes=MISTAKES))
        for task in world.tasks("train", EPISODES, seed=0)
    ]


RECIPE = Recipe(
    name="household",
    summary="fetches an object and delivers it in a house of five rooms with a locked door",
    data=f"{EPISODES} demonstrations in training tasks of household:{SIZE}; "
    f"each turn is a random mistake with probability {MISTAKES}",
    words=lambda: household_world(SIZE).vocabulary(),
    conversations=conversations,
    shape=Shape(layers=2, width=96, heads=4, hidden=256, context=1024),
    training=SftSettings(steps=500, rows=24, learning_rate=3e-3, warmup=30),
    world=f"household:{SIZE}",
    sampling=Sampling(max_tokens=12),
)


def first_conversations() -> list[Conversation]:
    """The first of the demonstrations."""
    return conversations()[:FIRST]


NOVICE = replace(
    RECIPE,
    name="household-novice",
    summary="the household agent, taught half as long on fewer demonstrations: about one task in six is done",
    data=f"the first {FIRST} demonstrations of the household agent",
    conversations=first_conversations,
    training=replace(RECIPE.training, steps=250),
)
