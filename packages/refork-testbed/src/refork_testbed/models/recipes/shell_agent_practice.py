"""How an agent practises in two worlds at once: group policy gradient, the worlds' tasks in turn."""

from __future__ import annotations

from collections.abc import Sequence

from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task, World
from refork_methods.credit.methods import credit_method
from refork_methods.train.loop import TreeTraining, train_policy
from refork_testbed.models.recipe import Made
from refork_testbed.models.recipes.shell_agent_data import SAMPLING, Blind, environment
from refork_testbed.models.recipes.world_model_data import WORLDS, world_model

#: Updates, each of one world: tasks x rollouts of independent draws (GRPO).
PLAN = TreeTraining(updates=24, tasks=8, leaves=8, learning_rate=5e-5, minibatches=2)
#: Training tasks with this seed are other ones than those that were recorded.
SEED = 7


def real_worlds() -> list[World]:
    """The real ones, the agent told its task alone."""
    return [Blind(environment(spec)) for spec in WORLDS]


def simulated_worlds(simulator: LocalPolicy) -> list[World]:
    """The same with a model's answers: the likeliest ones."""
    model = world_model(simulator)
    return [model.world(environment(spec)) for spec in WORLDS]


def fresh(world: World, count: int) -> Sequence[Task]:
    """Training tasks that the recordings do not have."""
    return world.tasks("train", count, SEED)


def practise(
    policy: LocalPolicy, worlds: Sequence[World], plan: TreeTraining, progress: Progress = silent
) -> Made:
    """Train a policy in place, its updates in the worlds in turn; each world has its own optimiser state.

    Source: GRPO (arXiv 2402.03300) for the advantages; a frozen simulator in place of the world is that of
    arXiv 2606.24597.
    """
    log: list[Json] = []
    share = plan.updates // len(worlds)
    runs = []
    trees = [Tree.memory() for _ in worlds]
    for number, (world, tree) in enumerate(zip(worlds, trees, strict=True)):
        tasks = fresh(world, share * plan.tasks)
        one = TreeTraining(
            updates=share, tasks=plan.tasks, leaves=plan.leaves, learning_rate=plan.learning_rate,
            minibatches=plan.minibatches, seed=plan.seed + number,
        )  # fmt: skip
        runs.append(
            train_policy(
                tree, policy, world, tasks, one, SAMPLING, grower="independent", credit=credit_method("grpo")
            )
        )
    for turn in range(share):
        for number, (world, run) in enumerate(zip(worlds, runs, strict=True)):
            update = next(run)
            log.append({"world": world.name} | {k: v for k, v in update.flat().items() if k != "seconds"})
            progress("practice", turn * len(worlds) + number + 1, plan.updates, tokens=update.spent)
    for tree in trees:
        tree.close()
    rate = {world.name: [row["success"] for row in log if row["world"] == world.name] for world in worlds}
    told = "; ".join(f"{name}: success {found[0]:.2f} in the first update, {found[-1]:.2f} in the last"
                     for name, found in rate.items())  # fmt: skip
    how = (
        f"{len(log)} updates of {plan.tasks} tasks x {plan.leaves} rollouts, the worlds in turn (GRPO), rate "
        f"{plan.learning_rate}; {told}"
    )
    return Made(log, {"updates": len(log), "tokens": sum(row["tokens"] for row in log), "how": how})
