"""``world-model-sft``: says first what decides the answer of a shell or a database, then the answer.

The reasoning is the note that the environment itself gives: the rows or lines that an action touches, as they
are at that moment. Source: arXiv 2606.24597 for the stage; there a teacher writes the reasoning.
"""

from __future__ import annotations

from refork.policies.local import LocalPolicy
from refork.progress import Progress
from refork.types import Json
from refork_methods.simulate.packed import train_packed
from refork_methods.train.schedule import Schedule
from refork_methods.train.weighted import WeightedSettings
from refork_testbed.models.recipe import Made
from refork_testbed.models.recipes.world_model_data import SAMPLING, lessons, measure
from refork_testbed.models.staged_recipe import Staged

SETTINGS = WeightedSettings(
    steps=10_000,
    rows=3,
    schedule=Schedule(peak=6e-4, shape="cosine", warmup=100, final=0.02),
    betas=(0.9, 0.98),
    half=True,
)


def train(policy: LocalPolicy, progress: Progress) -> Made:
    """Every turn of the recordings with its note as the reasoning before the answer."""
    done = train_packed(policy, lessons(progress), SETTINGS, progress=progress)
    how = (
        f"{done.facts['steps']} steps of {SETTINGS.rows} trajectories with all their turns as targets "
        f"({done.facts['targets']} in all), AdamW, rate {SETTINGS.schedule.peak}, cosine; last loss "
        f"{done.facts['loss_last']:.3f} nats"
    )
    return Made(done.log, done.facts | {"how": how})


def measured(policy: LocalPolicy, progress: Progress) -> Json:
    """Exact match; where a turn has a note it begins with its reasoning by itself."""
    return measure(policy, progress)


RECIPE = Staged(
    name="world-model-sft",
    summary="says what decides the answer of a shell or a small database, and then the answer",
    data="the episodes of `world-model-cpt`, with the environments' notes as reasoning",
    parent="world-model-cpt",
    train=train,
    measure=measured,
    reads=lessons,
    sampling=SAMPLING,
)
