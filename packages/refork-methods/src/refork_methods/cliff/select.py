"""Which recorded rollouts are worth a scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from refork.errors import BadInput
from refork.forking.arm import resolved_scores
from refork.judge import Judge
from refork.tree.node import Node, Point
from refork.tree.tree import Tree

Which = Literal["wrong", "right", "all"]


def plain_leaves(tree: Tree, task: Node) -> list[str]:
    """Ends of a task's own rollouts: drawn unchanged from the task, or recorded without a fork.

    What forks inside other rollouts led to is left out: it is somebody's experiment, not a rollout.
    """
    drawn = [
        record.leaf
        for arm in tree.forks(task)
        if arm.change is None and arm.token is None and "exclude_first" not in arm.extra
        for record in tree.draws(arm.id)
        if record.end != "error"
    ]
    given = []
    for leaf in tree.leaves(task):
        if leaf.fork is None and leaf.id != task.id and not leaf.key.startswith("edit/"):
            given.append(leaf.id)
    traces = [node.id for node in tree.children(task) if node.fork is None and node.key.startswith("trace/")]
    return list(dict.fromkeys([*drawn, *traces, *given]))


def _outcomes(tree: Tree, leaves: Sequence[str], score: str, judge: Judge | None) -> dict[str, float]:
    """Scores of leaves: by the judge, who is asked where it has not said; without one by world or newest."""
    if judge is None or judge.score != score:
        return resolved_scores(tree, score, leaves)
    known = tree.score_map(score, leaves, judge.producer.id)
    asked = [leaf for leaf in leaves if leaf not in known]
    answers = ((trajectory.leaf.id, judge.judge(trajectory).value) for trajectory in tree.paths(asked))
    given = {leaf: value for leaf, value in answers if value is not None}
    return resolved_scores(tree, score, leaves, (judge.producer.id, score)) | given


def choose_traces(
    tree: Tree, which: Which = "wrong", score: str = "success", judge: Judge | None = None
) -> list[Point]:
    """Ends of recorded rollouts by outcome, those of the most often solved tasks first.

    Where a task is never solved there is no success to lose. Ungraded rollouts belong to ``all`` only. The
    outcome is what ``judge`` says, else the world's, else the newest.

    Raises: BadInput for an unknown choice, or where the tree holds no such rollout.
    """
    if which not in ("wrong", "right", "all"):
        raise BadInput(f"unknown choice of traces {which!r}", hint="wrong, right or all")
    ranked: list[tuple[float, int, str]] = []
    for number, task in enumerate(tree.tasks()):
        leaves = plain_leaves(tree, task)
        scored = _outcomes(tree, leaves, score, judge)
        rate = sum(scored.values()) / len(scored) if scored else 0.0
        for leaf in leaves:
            value = scored.get(leaf)
            right = value is not None and value >= 1.0
            if which == "all" or (value is not None and right == (which == "right")):
                ranked.append((-rate, number, leaf))
    if not ranked:
        raise BadInput(
            f"the tree holds no {'' if which == 'all' else which + ' '}rollout to scan",
            hint="grow rollouts with a world or a judge that grades them, or choose --traces all",
        )
    return [tree.at(leaf) for _, _, leaf in sorted(ranked, key=lambda row: row[:2])]


def first_by(tree: Tree, ends: list[Point], weights: str | None) -> Point:
    """The first trace whose turns were all drawn with these weights; the first of all where none was.

    A tree may hold rollouts of a policy before, during and after its training; the tokens of the others
    cannot be forked with it.
    """

    def own(end: Point) -> bool:
        nodes = [step.node for step in tree.path(end) if step.node.kind == "action"]
        return all(node.weights == weights for node in nodes)

    return next(filter(own, ends), ends[0])
