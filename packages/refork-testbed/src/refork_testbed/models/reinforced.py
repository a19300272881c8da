"""Make an organism from another one: reinforcement on a world's training tasks."""

from __future__ import annotations

from pathlib import Path

from refork.errors import BadInput
from refork.policies.load import quiet
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.open import open_world
from refork_methods.credit.methods import credit_method
from refork_methods.train.loop import train_policy
from refork_testbed.models.recipe import Made, Reinforced


def reinforce(recipe: Reinforced, parent: Path, folder: Path, progress: Progress = silent) -> Made:
    """Train the parent's model by group policy gradient until enough rollouts succeed, and write it.

    The log has one row per update. Every group of rollouts starts at a task and shares nothing but its prompt
    (GRPO, arXiv 2402.03300); the tasks are new in every update, so ``success`` is of tasks never trained on.

    Raises:
        BadInput: the last update came before ``until`` was reached.
    """
    plan, stage = recipe.training, f"training {recipe.name}"
    world = open_world(recipe.world)
    policy = LocalPolicy.load(str(parent))
    start = policy.card.weights
    tasks = world.tasks("train", plan.updates * plan.tasks, recipe.seed)
    log: list[Json] = []
    progress(stage, 0, plan.updates, waiting="rollouts")
    with Tree.memory() as tree:
        for update in train_policy(
            tree, policy, world, tasks, plan, recipe.sampling, grower="independent",
            credit=credit_method("grpo"),
        ):  # fmt: skip
            # Seconds would make two builds of the same weights differ.
            log.append({k: v for k, v in update.flat().items() if k != "seconds"})
            progress(stage, update.number, plan.updates, tokens=update.spent)
            if update.success >= recipe.until:
                break
    if log[-1]["success"] is None or log[-1]["success"] < recipe.until:
        raise BadInput(
            f"after {plan.updates} updates {log[-1]['success']} of the rollouts succeed, not {recipe.until}",
            where=recipe.name,
            hint="more updates, a higher rate, or a lower goal",
        )
    with quiet():
        policy.model.save_pretrained(folder)
        policy.codec.tokenizer.save_pretrained(folder)
    facts: Json = {
        "parameters": sum(p.numel() for p in policy.model.parameters()),
        "vocabulary": len(policy.codec.tokenizer),
        "parent_weights": start,
        "updates": len(log),
        "rollouts": len(log) * plan.tasks * plan.leaves,
        "tokens": log[-1]["spent"],
        "success_first": log[0]["success"],
        "success_last": log[-1]["success"],
    }
    return Made(log, facts)
