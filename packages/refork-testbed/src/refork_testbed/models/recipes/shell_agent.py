"""``shell-agent``: has seen tasks solved in a shell and on small databases, and acts as it saw.

It begins as ``world-model-sft``, which knows how these worlds answer and copies names well: a new model of
this size copies none after as many lessons. What it was shown is short enough that it could do more than it
does: what practice in a simulator, or in the real worlds, has to change.
"""

from __future__ import annotations

from refork.policies.local import LocalPolicy
from refork.progress import Progress
from refork_methods.train.schedule import Schedule
from refork_methods.train.weighted import Weighted, WeightedSettings, fit_weighted
from refork_testbed.models.recipe import Made
from refork_testbed.models.recipes.shell_agent_data import SAMPLING, all_lessons, measure
from refork_testbed.models.staged_recipe import Staged
from refork_testbed.models.tokenizer import examples

#: Solved tasks of each world.
EPISODES = 2_000
SETTINGS = WeightedSettings(
    steps=1_000,
    rows=8,
    schedule=Schedule(peak=5e-4, shape="cosine", warmup=50, final=0.05),
    betas=(0.9, 0.98),
    half=True,
)


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
    parent="world-model-sft",
    train=train,
    measure=measure,
    sampling=SAMPLING,
)
