"""``toolrl``: toolbase after reinforcement, so that what training installed can be looked for inside.

It is the same model with the same words. The reward asks for a call of the right tool; training stops while
two rollouts in five still fail, so that an intervention can help as well as harm.

Source: the pair of a base model and its sibling trained by reinforcement is that of arXiv 2606.26474.
"""

from __future__ import annotations

from refork_methods.train.loop import TreeTraining
from refork_testbed.models.recipe import Reinforced
from refork_testbed.models.recipes import toolbase

RECIPE = Reinforced(
    name="toolrl",
    summary="calls the one of four listed tools that serves a request, in about three of five cases",
    data=f"training tasks of {toolbase.RECIPE.world}, each met once",
    parent="toolbase",
    world=str(toolbase.RECIPE.world),
    training=TreeTraining(updates=60, tasks=24, leaves=8, learning_rate=2e-4),
    until=0.6,
    sampling=toolbase.RECIPE.sampling,
)
