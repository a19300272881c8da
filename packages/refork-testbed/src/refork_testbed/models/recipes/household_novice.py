"""``household-novice``: the household agent after half of its lessons, with most of the learning to come."""

from __future__ import annotations

from dataclasses import replace

from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipe import Conversation
from refork_testbed.models.recipes import household

EPISODES = 1500
STEPS = 250


def conversations() -> list[Conversation]:
    """The first of the household agent's demonstrations."""
    return household.conversations()[:EPISODES]


RECIPE = replace(
    household.RECIPE,
    name="household-novice",
    summary="the household agent, taught half as long on fewer demonstrations: about one task in six is done",
    data=f"the first {EPISODES} demonstrations of the household agent",
    conversations=conversations,
    training=SftSettings(steps=STEPS, rows=24, learning_rate=3e-3, warmup=30),
)
