"""Training a conductor: the world of plans and the trainer of policies, put together."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from pydantic import Field

from refork.policies.base import Sampling
from refork.policies.open import spell
from refork.progress import Progress, silent
from refork.registry import part
from refork.runs.recipe import RecipePart, digest, open_folder
from refork.types import Json
from refork_methods.route.conduct.coins import Coins
from refork_methods.route.conduct.world import ConductWorld, FileQueries, Queries, Reward
from refork_methods.route.pool import WorkerPool
from refork_methods.train.run import Rates

#: Pool and queries where every chance is known; they come with the testbed.
BUILT_IN = "expressions"
TESTBED = "refork-testbed"


class ConductEvaluation(RecipePart):
    """Held-out queries and plans of each that are measured before and after; 0 queries: nothing is."""

    #: Held-out queries that are measured before and after; 0: none.
    count: int = Field(default=200, ge=0)
    #: Plans of each.
    draws: int = Field(default=1, ge=1)


class ConductRecipe(RecipePart):
    """Group policy gradient on what plans earn: everything that decides what a run does."""

    #: Who writes plans: organism:conductor, or any local policy.
    conductor: str = "organism:conductor"
    #: A pool file, or expressions.
    pool: str = BUILT_IN
    #: A file of queries, or expressions.
    queries: str = BUILT_IN
    #: Updates in all.
    updates: int = Field(default=60, ge=1)
    #: Queries of an update.
    per_update: int = Field(default=32, ge=1)
    #: Plans of each query.
    plans: int = Field(default=8, ge=2)
    #: Parts of an update, one gradient step each.
    minibatches: int = Field(default=2, ge=1)
    #: The learning rate.
    rate: Rates = Rates(peak=1.5e-3, shape="cosine", final=0.1)
    #: Tokens of a plan at most.
    max_tokens: int = Field(default=24, ge=1)
    #: Every query offers random workers, their number one of these.
    sub_pools: tuple[int, ...] = ()
    #: How deep plans may ask for plans.
    rounds: int = Field(default=1, ge=1)
    #: What a deeper plan counts.
    discount: float = Field(default=0.2, ge=0, le=1)
    #: Taken off the reward for each call.
    per_call: float = Field(default=0.0, ge=0)
    #: Taken off the reward for each unit of cost.
    per_money: float = Field(default=0.0, ge=0)
    #: Success on held-out queries.
    evaluation: ConductEvaluation = ConductEvaluation()
    #: Of queries and noise.
    seed: int = 0


def pool_named(name: str, coins: Coins | None = None) -> WorkerPool:
    """The pool of a file, or the built-in one."""
    from refork_methods.route.pool import read_pool

    if name != BUILT_IN:
        return read_pool(Path(name))
    pool: WorkerPool = part("route.pool", TESTBED)(coins)
    return pool


def queries_named(name: str) -> Queries:
    """The queries of a JSON-lines file, or the built-in ones."""
    if name != BUILT_IN:
        return FileQueries.read(name)
    queries: Queries = part("route.queries", TESTBED)()
    return queries


def world_of(recipe: ConductRecipe, coins: Coins | None = None) -> ConductWorld:
    """The world that a recipe trains in."""
    return ConductWorld(
        queries_named(recipe.queries),
        pool_named(recipe.pool, coins),
        Reward(recipe.per_call, recipe.per_money),
        recipe.sub_pools,
        recipe.rounds,
    )


def run_conduct(recipe: ConductRecipe, folder: Path, progress: Progress = silent) -> Json:
    """Train a recipe's conductor into ``folder``; the same call again goes on from its last checkpoint.

    The folder holds ``tree.db`` (all plans), ``checkpoints/``, ``policy/`` and ``summary.json``.
    """
    from refork.tree.tree import Tree
    from refork_methods.credit.rewards import reward_credit
    from refork_methods.train.loop import TreeTraining, finished_updates, train_policy
    from refork_methods.train.objectives import objective
    from refork_methods.train.run import local_policy, save_policy
    from refork_methods.train.schedule import Schedule

    world, sampling = world_of(recipe), Sampling(max_tokens=recipe.max_tokens)
    policy = local_policy(spell(recipe.conductor, progress))
    tasks = world.tasks("train", recipe.updates * recipe.per_update, recipe.seed)
    plan = TreeTraining(
        updates=recipe.updates, tasks=recipe.per_update, leaves=recipe.plans, seed=recipe.seed,
        minibatches=recipe.minibatches, schedule=Schedule(**recipe.rate.model_dump()),
        gradient=objective("grpo"),
    )  # fmt: skip
    resumed = open_folder(folder, recipe)
    checkpoints, before = folder / "checkpoints", folder / "before.json"
    # Once there is an update the policy is no longer the one of before.
    if not before.exists() and not finished_updates(checkpoints):
        _write(before, _measured(recipe, policy, sampling, progress))
    with Tree.open(folder / "tree.db") as tree:
        for update in train_policy(
            tree, policy, world, tasks, plan, sampling, grower="independent", folder=checkpoints, every=10,
            credit=partial(reward_credit, discount=recipe.discount), digest=digest(recipe),
        ):  # fmt: skip
            progress("training", update.number, recipe.updates, tokens=update.spent)
    save_policy(policy, folder / "policy")
    done = finished_updates(checkpoints)
    summary: Json = {
        "policy": f"hf:{folder / 'policy'}",
        "updates": len(done),
        "tokens": done[-1]["spent"],
        "before": json.loads(before.read_text()) if before.exists() else None,
        "after": _measured(recipe, policy, sampling, progress),
        "resumed": resumed,
        "digest": digest(recipe),
    }
    _write(folder / "summary.json", summary)
    return summary


def _measured(recipe: ConductRecipe, policy: object, sampling: Sampling, progress: Progress) -> Json | None:
    """Held-out queries with the whole pool; exact expectations where the workers are the built-in ones."""
    from refork.policies.base import Policy
    from refork_methods.route.conduct.evaluate import evaluate, written_plans

    assert isinstance(policy, Policy)
    if not recipe.evaluation.count:
        return None
    whole = recipe.model_copy(update={"sub_pools": ()})
    world = world_of(whole)
    # Fixed seeds, so that before and after are measured on the same queries with the same noise.
    tasks = world.tasks("held-out", recipe.evaluation.count, 0)
    plans = written_plans(
        policy, world, tasks, draws=recipe.evaluation.draws, settings=sampling, seed=1, progress=progress
    )
    known = recipe.pool == BUILT_IN and recipe.rounds == 1
    return evaluate(world, plans, partial(world_of, whole) if known else None).to_json()


def _write(file: Path, data: Json | None) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(data, indent=2) + "\n")
    part.replace(file)
