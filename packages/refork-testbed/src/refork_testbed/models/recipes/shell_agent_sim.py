"""``shell-agent-sim``: shell-agent after practice in ``world-model`` alone, where no command ever ran."""

from __future__ import annotations

from refork.core.policy.local import LocalPolicy
from refork.core.run.progress import Progress
from refork.learn.organism.build import build
from refork.learn.organism.recipe import Made
from refork.learn.organism.recipes import world_model
from refork.learn.organism.recipes.shell_agent_data import LAW, measure
from refork.learn.organism.recipes.shell_agent_practice import PLAN, practise, simulated_worlds
from refork.learn.organism.staged_recipe import Staged


def train(policy: LocalPolicy, progress: Progress) -> Made:
    """Group policy gradient in the simulated worlds; the simulator is frozen."""
    simulator = LocalPolicy.load(str(build(world_model.RECIPE.name, progress=progress)))
    return practise(policy, simulated_worlds(simulator), PLAN, progress)


RECIPE = Staged(
    name="shell-agent-sim",
    summary="acts in a shell and on small databases, after practice in a simulator alone",
    data="training tasks of both worlds that no recording has, in turn; `world-model` answers, and grading "
    "reads its verdicts",
    parent="shell-agent",
    train=train,
    measure=measure,
    sampling=LAW,
)
