"""``shell-agent-warm``: learned to predict its worlds' answers, then to act from few lessons."""

from __future__ import annotations

from refork.core.policy.local import LocalPolicy
from refork.core.run.progress import Progress
from refork.learn.organism.recipe import Made
from refork.learn.organism.recipes import shell_agent_warmup as warmup
from refork.learn.organism.recipes.shell_agent_data import LAW, measure
from refork.learn.organism.staged_recipe import Staged


def begin(progress: Progress) -> LocalPolicy:
    """The model that both arms begin with."""
    return warmup.begin(0, progress)


def train(policy: LocalPolicy, progress: Progress) -> Made:
    """Reading, then few lessons."""
    return warmup.arm(policy, "predict", 0, progress)


RECIPE = Staged(
    name="shell-agent-warm",
    summary="learned first to predict what a shell and small databases answer, then to act from few lessons",
    data=f"the recorded episodes of `world-model`; lessons: {warmup.EPISODES} solved tasks of each world",
    begin=begin,
    train=train,
    measure=measure,
    sampling=LAW,
)
