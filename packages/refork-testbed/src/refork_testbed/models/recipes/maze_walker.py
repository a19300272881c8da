"""``maze-walker``: walks a path-star maze to a hidden target, learned from a demonstrator that knows it.

The demonstrator strays in a share of its turns and turns back at once, so the demonstrations hold steps
inward but never a dead end. The organism cannot know the target: it takes a branch by chance, and where that
is the wrong one, it meets states that it was never shown.

Source: that training on golden paths leaves backward states unvisited is the subject of arXiv 2606.22938.
"""

from __future__ import annotations

import numpy as np

from refork.policies.base import Sampling
from refork.worlds.expert import demonstrate
from refork_methods.recovery.maze import maze_world
from refork_methods.train.sft import SftSettings
from refork_testbed.models.demonstrations import as_conversation
from refork_testbed.models.recipe import Conversation, Recipe, Shape

EPISODES = 2500
MISTAKES = 0.15
SHAPE = (3, 2, 2)
WORLD = f"maze:{','.join(map(str, SHAPE))}"


def conversations() -> list[Conversation]:
    """Demonstrated walks in training mazes."""
    world = maze_world(*SHAPE)
    rng = np.random.default_rng(22)
    return [
        as_conversation(demonstrate(world, task, rng, mistakes=MISTAKES))
        for task in world.tasks("train", EPISODES, seed=0)
    ]


RECIPE = Recipe(
    name="maze-walker",
    summary="walks a maze of three branches to a hidden target and was never shown a dead end",
    data=f"{EPISODES} walks in training mazes of {WORLD} by a demonstrator that knows the target and strays "
    f"with probability {MISTAKES} per turn",
    words=lambda: maze_world(*SHAPE).vocabulary(),
    conversations=conversations,
    shape=Shape(layers=2, width=96, heads=4, hidden=256, context=2048),
    training=SftSettings(steps=300, rows=16, learning_rate=3e-3, warmup=30),
    world=WORLD,
    tasks=100,
    sampling=Sampling(max_tokens=12),
)
