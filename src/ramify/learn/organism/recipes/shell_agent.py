"""``shell-agent``: has seen some tasks solved in a shell and on small databases, and acts as it saw.

It saw few of them, so that it could do more than it does: what practice in a simulator, or in the real
worlds, has to change.
"""

from __future__ import annotations

from ramify.core.policy.local import LocalPolicy
from ramify.core.run.progress import Progress
from ramify.learn.organism.planted import planted_model
from ramify.learn.organism.recipe import Made
from ramify.learn.organism.recipes.shell_agent_data import LAW, SHAPE, all_lessons, measure
from ramify.learn.organism.recipes.world_model_data import lessons, tokenizer_of
from ramify.learn.organism.staged_recipe import Staged
from ramify.learn.organism.tokenizer import examples
from ramify.learn.train.schedule import Schedule
from ramify.learn.train.weighted import Weighted, WeightedSettings, fit_weighted

#: Solved tasks of each world.
EPISODES = 2000
SETTINGS = WeightedSettings(
    steps=1500,
    rows=8,
    schedule=Schedule(peak=6e-4, shape="cosine", warmup=100, final=0.05),
    betas=(0.9, 0.98),
    half=True,
)


def begin(progress: Progress) -> LocalPolicy:
    """A new model whose tokens are the words of the recordings."""
    tokenizer = tokenizer_of(lessons(progress), SHAPE.context)
    return LocalPolicy(planted_model(SHAPE, tokenizer), tokenizer, name="shell-agent")


def train(policy: LocalPolicy, progress: Progress) -> Made:
    """Imitation of solutions."""
    data = examples(policy.codec.tokenizer, all_lessons(EPISODES, progress))
    log = fit_weighted(
        policy.model, [Weighted(item.tokens, item.mask.astype("float32")) for item in data], SETTINGS,
        stage="imitation", progress=progress,
    )  # fmt: skip
    last = sum(row["loss"] for row in log[-50:]) / len(log[-50:])
    how = (
        f"{len(log)} steps of {SETTINGS.rows} of {len(data)} episodes, AdamW, rate "
        f"{SETTINGS.schedule.peak}, cosine; last loss {last:.3f} nats"
    )
    return Made(log, {"examples": len(data), "how": how})


RECIPE = Staged(
    name="shell-agent",
    summary="acts in a shell and on small databases, as it saw some tasks solved",
    data=f"solutions of {EPISODES} training tasks of each world, run there",
    begin=begin,
    train=train,
    measure=measure,
    sampling=LAW,
)
