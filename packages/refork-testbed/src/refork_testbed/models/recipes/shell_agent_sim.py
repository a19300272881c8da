"""``shell-agent-sim``: shell-agent after practice in ``world-model`` alone, where no command ever ran."""

from __future__ import annotations

from refork.policies.local import LocalPolicy
from refork.progress import Progress
from refork_testbed.models.build import build
from refork_testbed.models.recipe import Made
from refork_testbed.models.recipes import world_model
from refork_testbed.models.recipes.shell_agent_data import SAMPLING, measure
from refork_testbed.models.recipes.shell_agent_practice import PLAN, practise, simulated_worlds
from refork_testbed.models.staged_recipe import Staged


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
    sampling=SAMPLING,
)
