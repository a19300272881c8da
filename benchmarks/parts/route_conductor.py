"""The conductor's part of the route benchmark: learned workflows, isolation, removed workers, cost per call.

A tiny transformer that writes well-formed plans with random choices is trained by group policy gradient on
what its plans earn (0, 0.5 or 1). Its plans are then sampled for held-out expressions and judged twice: by
one run each, and by the exact expectation over all of the workers' chance.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.stats import Interval
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task
from refork_methods.credit.rewards import reward_credit
from refork_methods.route.conduct.coins import Coins
from refork_methods.route.conduct.collapse import collapse_table
from refork_methods.route.conduct.evaluate import Evaluation, Written, evaluate, written_plans
from refork_methods.route.conduct.plan import Plan
from refork_methods.route.conduct.world import ConductWorld, Reward
from refork_methods.train.loop import TreeTraining, train_policy
from refork_methods.train.objectives import objective
from refork_methods.train.schedule import Schedule
from refork_testbed.models.build import build
from refork_testbed.trials.conducting import Expressions, expression_pool
from refork_testbed.worlds.expressions import SKILLS, Expression, closed_forms

LAW = Sampling(max_tokens=24)
GREEDY = Sampling(max_tokens=24, temperature=0.0)
#: Queries of an update and plans of a query, as in the published training; held-out expressions there are.
QUERIES, PLANS, HELD_OUT = 32, 8, 716
RATE = Schedule(peak=1.5e-3, shape="cosine", final=0.1, warmup=4)
UPDATES, QUICK_UPDATES = 60, 40
#: What a call costs where it costs anything: a right answer is worth it, a useless step is not.
PER_CALL = 0.08


@dataclass(frozen=True)
class Trained:
    """A trained conductor, and what its training took."""

    policy: LocalPolicy
    seconds: float
    rollouts: int


def world_of(
    reward: Reward | None = None,
    sizes: tuple[int, ...] = (),
    coins: Coins | None = None,
    without: str | None = None,
) -> ConductWorld:
    """The expressions with their four workers, one of them perhaps removed."""
    pool = expression_pool(coins)
    return ConductWorld(
        Expressions(), pool if without is None else pool.without(without), reward or Reward(), sizes
    )


def trained(seed: int, updates: int = UPDATES, world: ConductWorld | None = None) -> Trained:
    """The organism ``conductor`` after group policy gradient: clip 0.2, no KL, equal rewards skipped."""
    world = world or world_of()
    policy = LocalPolicy.load(str(build("conductor")))
    tasks = world.tasks("train", updates * QUERIES, seed)
    plan = TreeTraining(
        updates=updates, tasks=QUERIES, leaves=PLANS, minibatches=2, schedule=RATE, seed=seed,
        gradient=objective("grpo"),
    )  # fmt: skip
    began = time.monotonic()
    with Tree.memory() as tree:
        for _ in train_policy(
            tree, policy, world, tasks, plan, LAW, grower="independent", credit=reward_credit
        ):
            pass
    return Trained(policy, time.monotonic() - began, updates * QUERIES * PLANS)


def measured(
    policy: LocalPolicy, draws: int, law: Sampling = LAW, without: str | None = None
) -> tuple[Evaluation, list[Written]]:
    """Plans for every held-out expression, run once each and in expectation."""
    world = world_of(without=without)
    tasks: list[Task] = world.tasks("held-out", HELD_OUT)
    plans = written_plans(policy, world, tasks, draws=draws, settings=law, seed=1)
    return evaluate(world, plans, lambda coins: world_of(coins=coins, without=without)), plans


def useless_steps(plans: Sequence[Written]) -> float:
    """Share of the plans for one-operator expressions that take more than one step."""
    pure = [p for p in plans if not Expression.parse(p.task.data["query"]["text"]).mixed]
    return sum(len(Plan.parse(p.text)) > 1 for p in pure) / len(pure)


def split_steps(plans: Sequence[Written]) -> float:
    """Share of the plans for two-operator expressions that take two steps."""
    mixed = [p for p in plans if Expression.parse(p.task.data["query"]["text"]).mixed]
    return sum(len(Plan.parse(p.text)) == 2 for p in mixed) / len(mixed)


def conductor(quick: bool) -> Json:
    """Accuracy and share of plans that run, per seed; the least of each over seeds."""
    best = closed_forms()
    print(
        f"closed forms: best worker {best.single:.3f}, best worker per query {best.picked:.3f}, "
        f"best two steps {best.steps:.4f}, without access {best.blind:.0f}"
    )
    start, _ = measured(LocalPolicy.load(str(build("conductor"))), 1)
    print(_row("untrained", start))
    seeds, updates, draws = (1, QUICK_UPDATES, 2) if quick else (5, UPDATES, 6)
    rows = []
    for seed in range(seeds):
        made = trained(seed, updates)
        found, _ = measured(made.policy, draws)
        print(_row(f"seed {seed}", found) + f"   {made.rollouts} rollouts in {made.seconds:.0f} s")
        rows.append(found)
    return {
        "conductor_min": min(row.expected or 0.0 for row in rows),
        "conductor_sampled_min": min(_accuracy(row).estimate for row in rows),
        "parse_min": min(row.run.estimate for row in rows),
        "conductor_seeds": len(rows),
        "conductor_start": start.expected,
    }


def _accuracy(found: Evaluation) -> Interval:
    assert found.accuracy is not None, "nothing was graded"
    return found.accuracy


def _row(name: str, found: Evaluation) -> str:
    low, high = _accuracy(found).low, _accuracy(found).high
    return (
        f"{name:<12} expected {found.expected:.4f}   sampled {_accuracy(found).estimate:.4f} "
        f"[{low:.4f}, {high:.4f}]   plans that run {found.run.estimate:.4f}   calls {found.calls:.2f}   "
        f"tokens {found.tokens or 0:.1f}   n {found.plans}"
    )


def collapse(draws: int = 4000) -> Json:
    """The collapse table through the engine: every outcome, and sampled."""
    rows = collapse_table(draws=draws)
    print(f"\n{'voters':<10}{'copies':>8}{'closed form':>13}{'engine':>9}{'sampled':>9}{'error':>8}")
    for row in rows:
        name = "isolated" if row.isolation == "workflow" else "shared"
        print(
            f"{name:<10}{row.copies:>8}{row.closed:>13.4f}{row.engine:>9.4f}{row.sampled:>9.4f}{row.error:>8.4f}"
        )
    return {
        "collapse_max_dev": max(abs(row.engine - row.closed) for row in rows),
        "collapse_sampled_max_z": max(abs(row.sampled - row.closed) / row.error for row in rows),
    }


def removed_worker(updates: int = 2 * UPDATES, seed: int = 0) -> Json:
    """What a conductor loses when one worker is removed, trained on random pools or on all four workers.

    Random pools hold three of the four, one time in four all. The loss is against the best two-step workflow
    of the workers that remain.
    """
    print(f"\n{'trained on':<16}{'full pool':>10}" + "".join(f"{'without ' + n:>12}" for n in SKILLS))
    worst: Json = {}
    for name, sizes in (("random pools", (3, 3, 3, 4)), ("the full pool", ())):
        policy = trained(seed, updates, world_of(sizes=sizes)).policy
        whole = closed_forms().steps - (measured(policy, 1)[0].expected or 0.0)
        losses = []
        for gone in SKILLS:
            found, _ = measured(policy, 1, without=gone)
            remaining = [one for one in SKILLS if one != gone]
            losses.append(closed_forms(remaining).steps - (found.expected or 0.0))
        print(f"{name:<16}{whole:>10.3f}" + "".join(f"{loss:>12.3f}" for loss in losses))
        worst["subpools" if sizes else "fixed"] = max(losses)
    return {"removed_loss_subpools": worst["subpools"], "removed_loss_fixed": worst["fixed"]}


def cost_per_call(updates: int = 3 * UPDATES // 2, seed: int = 0) -> Json:
    """Depth that adapts to the query comes from a cost per call, not from the plain reward."""
    found: Json = {}
    print(
        f"\n{'per call':<10}{'useless second steps':>22}{'two steps where needed':>24}"
        f"{'expected':>10}{'calls':>7}"
    )
    for cost in (0.0, PER_CALL):
        policy = trained(seed, updates, world_of(Reward(cost))).policy
        result, plans = measured(policy, 1, GREEDY)
        readable = [p for p in plans if world_of().play(p.task, p.text).execution is not None]
        useless, needed = useless_steps(readable), split_steps(readable)
        print(f"{cost:<10}{useless:>22.3f}{needed:>24.3f}{result.expected or 0.0:>10.3f}{result.calls:>7.2f}")
        key = "costed" if cost else "free"
        found |= {f"useless_{key}": useless, f"needed_{key}": needed, f"calls_{key}": result.calls}
    return found


def all_parts(quick: bool) -> Json:
    """Every figure of this part; the quick form leaves out removed workers and costs."""
    found = conductor(quick) | collapse(1000 if quick else 4000)
    return found if quick else found | removed_worker() | cost_per_call()


def main() -> None:
    """Run this part alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, fewer updates")
    print(json.dumps(all_parts(parser.parse_args().quick)))


if __name__ == "__main__":
    main()
