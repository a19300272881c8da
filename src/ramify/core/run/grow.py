"""A growing run: recipe in, tree and summary out, resumable at any moment."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ramify.core import stats
from ramify.core.errors import BadInput
from ramify.core.fork.arm import graded
from ramify.core.grow.rollouts import grow
from ramify.core.policy.open import open_policy
from ramify.core.run.progress import Progress, silent
from ramify.core.run.recipe import GrowRecipe, digest, open_folder
from ramify.core.tree.tree import Tree
from ramify.core.types import Json
from ramify.core.world.open import open_world


def plan_grow(recipe: GrowRecipe) -> Json:
    """What a run would do, without a model: tasks, rollouts, and the most it could sample."""
    world = open_world(recipe.world)
    tasks = world.tasks(recipe.tasks.split, recipe.tasks.count, recipe.tasks.seed)
    turns = recipe.max_turns or world.max_turns
    rollouts = len(tasks) * recipe.draws
    return {
        "digest": digest(recipe),
        "world": f"{world.name} (version {world.version})",
        "policy": recipe.policy,
        "tasks": len(tasks),
        "rollouts": rollouts,
        "turns at most": rollouts * turns,
        "tokens at most": rollouts * turns * recipe.sampling.max_tokens,
    }


def run_grow(recipe: GrowRecipe, folder: Path, progress: Progress = silent) -> Json:
    """Grow the recipe's rollouts into ``folder/tree.db``; again with the same recipe it resumes."""
    world = open_world(recipe.world)
    policy = open_policy(recipe.policy)
    resumed = open_folder(folder, recipe)
    tasks = world.tasks(recipe.tasks.split, recipe.tasks.count, recipe.tasks.seed)
    with Tree.open(folder / "tree.db") as tree:
        groups = grow(
            tree, policy, world, tasks, draws=recipe.draws, settings=recipe.sampling.sampling(),
            seed=recipe.seed, max_turns=recipe.max_turns, progress=progress,
        )  # fmt: skip
        values = graded([v for group in groups for v in group.values()])
        errors = sum(d.end == "error" for group in groups for arm in group.forks for d in arm.draws)
    known = values[~np.isnan(values)]
    if not len(known):
        raise BadInput(
            f"none of the {len(values)} rollouts was graded",
            where=str(folder),
            hint="see `ramify tree show`: the draws' errors are recorded there",
        )
    interval = stats.mean_interval(known)
    summary = {
        "tasks": len(tasks),
        "rollouts": len(values),
        "graded": len(known),
        "errors": errors,
        "rate": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "tokens": sum(group.tokens for group in groups),
        "resumed": resumed,
        "digest": digest(recipe),
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary
