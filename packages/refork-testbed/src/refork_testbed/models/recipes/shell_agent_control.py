"""``shell-agent-control``: read episodes with shuffled answers, then learned to act from few lessons."""

from __future__ import annotations

from refork.policies.local import LocalPolicy
from refork.progress import Progress
from refork_testbed.models.recipe import Made
from refork_testbed.models.recipes import shell_agent_warmup as warmup
from refork_testbed.models.recipes.shell_agent_data import SAMPLING, measure
from refork_testbed.models.staged_recipe import Staged


def begin(progress: Progress) -> LocalPolicy:
    """The model that both arms begin with."""
    return warmup.begin(0, progress)


def train(policy: LocalPolicy, progress: Progress) -> Made:
    """Reading, then few lessons."""
    return warmup.arm(policy, "control", 0, progress)


RECIPE = Staged(
    name="shell-agent-control",
    summary="read first the same episodes with their answers shuffled, then learned to act from few lessons",
    data=f"the recorded episodes of `world-model`; lessons: {warmup.EPISODES} solved tasks of each world",
    begin=begin,
    train=train,
    measure=measure,
    sampling=SAMPLING,
)
