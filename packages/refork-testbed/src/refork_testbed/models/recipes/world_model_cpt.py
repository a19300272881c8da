"""``world-model-cpt``: has read what a shell and small databases answer, every turn a target.

Source: arXiv 2606.24597 for the three stages of ``world-model``, of which this is the first; there of a large
model that has read much before, here of a new one.
"""

from __future__ import annotations

from refork.policies.local import LocalPolicy
from refork.progress import Progress
from refork_methods.simulate.cpt import train_cpt
from refork_methods.simulate.data import loss_weights
from refork_methods.train.schedule import Schedule
from refork_methods.train.weighted import WeightedSettings
from refork_testbed.models.planted import planted_model
from refork_testbed.models.recipe import Made
from refork_testbed.models.recipes.world_model_data import (
    SAMPLING,
    SHAPE,
    WORLDS,
    lessons,
    measure,
    tokenizer_of,
)
from refork_testbed.models.staged_recipe import Staged

SETTINGS = WeightedSettings(
    steps=300,
    rows=4,
    schedule=Schedule(peak=2e-4, shape="cosine", warmup=50, final=0.3),
    betas=(0.9, 0.98),
    half=True,
)


def begin(progress: Progress) -> LocalPolicy:
    """A new model whose tokens are the words of the recordings."""
    tokenizer = tokenizer_of(lessons(progress), SHAPE.context)
    return LocalPolicy(planted_model(SHAPE, tokenizer), tokenizer, name="world-model-cpt")


def train(policy: LocalPolicy, progress: Progress) -> Made:
    """Next-token loss on the answers of all recorded turns, weighed by turn class."""
    done = train_cpt(policy, lessons(progress), SETTINGS, weigh=loss_weights, progress=progress)
    how = (
        f"{done.facts['steps']} steps of {SETTINGS.rows} trajectories ({done.facts['tokens']} tokens in "
        f"all of them), AdamW, rate {SETTINGS.schedule.peak}, cosine; last loss "
        f"{done.facts['loss_last']:.3f} nats"
    )
    return Made(done.log, done.facts | {"how": how})


RECIPE = Staged(
    name="world-model-cpt",
    summary="has read what a shell and small databases answer, and continues in their manner",
    data="recorded episodes of scripted actors: "
    + ", ".join(f"{count} training tasks of `{spec}`" for spec, count in WORLDS.items()),
    begin=begin,
    train=train,
    measure=measure,
    reads=lessons,
    sampling=SAMPLING,
)
