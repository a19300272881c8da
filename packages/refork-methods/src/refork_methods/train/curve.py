"""Loss and reward curves on the tree: what each update did, beside the rollouts that it learned from.

An update is a producer: its settings hold the numbers of the update, and it reads the producers of the
outcomes. It scores every task that it learned from with the mean outcome of that task's rollouts then.
So a curve is found where its evidence is, and goes out of sight with it when a judge is retired.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refork.forking.arm import graded
from refork.growing import Group
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork.types import Json

PRODUCER = "policy-gradient"
SCORE = "group-mean"

#: Depend on the machine's speed or on what was recorded before, not on the update.
_NOT_THE_UPDATE = ("seconds", "tokens")


def record_update(
    tree: Tree, groups: Sequence[Group], update: Json, *, digest: str, weights: str | None
) -> Producer:
    """Write what an update did to the tree; the same update again is stored once.

    ``digest`` names the run, ``weights`` the policy that sampled the rollouts.
    """
    leaves = {d.leaf for g in groups for arm in g.forks for d in arm.draws if d.end != "error"}
    reads: set[str] = set()
    for group in groups:
        found = tree.scores(name="success", under=group.root.node)
        reads |= {score.producer for score in found if score.node in leaves}
    config = {k: v for k, v in update.items() if k not in _NOT_THE_UPDATE}
    producer = Producer(
        PRODUCER, "1", {"run": digest, "weights": weights, "update": config}, tuple(sorted(reads))
    )
    means: dict[str, list[float]] = {}
    for group in groups:
        values = graded(group.values())
        if np.isfinite(values).any():
            means.setdefault(group.root.node.id, []).append(float(np.nanmean(values)))
    tree.add_producer(producer)
    tree.add_scores(Score(node, SCORE, float(np.mean(values)), producer.id) for node, values in means.items())
    return producer


def training_curve(tree: Tree, run: str | None = None) -> list[Json]:
    """The updates recorded on a tree, in order: number, success, mixed, cost, spent, metrics, run, weights.

    Args:
        tree: with rollouts of training.
        run: digest of one run; None: all.
    """
    found = [p.config for p in tree.producers() if p.name == PRODUCER]
    rows = [c["update"] | {"run": c["run"], "weights": c["weights"]} for c in found]
    return sorted((r for r in rows if run in (None, r["run"])), key=lambda r: (r["run"], r["number"]))
