"""``shell-agent-real``: shell-agent after practice in the real shell and the real databases."""

from __future__ import annotations

from refork.policies.local import LocalPolicy
from refork.progress import Progress
from refork_testbed.models.recipe import Made
from refork_testbed.models.recipes.shell_agent_data import SAMPLING, measure
from refork_testbed.models.recipes.shell_agent_practice import PLAN, practise, real_worlds
from refork_testbed.models.staged_recipe import Staged


def train(policy: LocalPolicy, progress: Progress) -> Made:
    """Group policy gradient in the real worlds."""
    return practise(policy, real_worlds(), PLAN, progress)


RECIPE = Staged(
    name="shell-agent-real",
    summary="acts in a shell and on small databases, after practice in the real ones",
    data="training tasks of both worlds that no recording has, in turn",
    parent="shell-agent",
    train=train,
    measure=measure,
    sampling=SAMPLING,
)
