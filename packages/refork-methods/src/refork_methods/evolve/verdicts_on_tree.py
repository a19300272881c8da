"""Verdicts on a rollout tree, where judges are producers, and what becomes stale there with one of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from refork.errors import BadInput
from refork.tree import Producer, Score, Tree
from refork.tree.address import is_address
from refork.tree.scoring import chain
from refork_methods.evolve.swap import Stale, Verdict
from refork_methods.evolve.verdict_files import verdict_value

_MAGIC: Final = b"SQLite format 3\x00"


def is_tree(file: Path) -> bool:
    """Whether a file is one of the kind that trees are stored in, or a tree's address."""
    if is_address(file):
        return True
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


@final
@dataclass(frozen=True, slots=True)
class TreeJudge:
    """A producer by what a user may call it: its name, or its name with eight digits of its id."""

    label: str
    producer: Producer


def tree_judges(tree: Tree) -> list[TreeJudge]:
    """Live producers with labels that tell them apart, in order of registration."""
    live = tree.producers()
    names = [one.name for one in live]
    return [
        TreeJudge(one.name if names.count(one.name) == 1 else f"{one.name}@{one.id[:8]}", one) for one in live
    ]


def find_judge(judges: Sequence[TreeJudge], name: str) -> TreeJudge:
    """The judge of a label, or of the beginning of a producer's id.

    Raises: BadInput where none, or several, fit.
    """
    exact = [one for one in judges if name in (one.label, one.producer.id)]
    fit = exact or [one for one in judges if one.producer.id.startswith(name) or one.producer.name == name]
    if len(fit) != 1:
        known = ", ".join(one.label for one in (fit or judges)[:12])
        raise BadInput(
            f"{'several judges fit' if fit else 'no live judge is'} {name!r} on this tree",
            hint=f"judges: {known or 'none'}",
        )
    return fit[0]


def tree_verdicts(
    tree: Tree, judge: TreeJudge, name: str | None = None, threshold: float | None = None
) -> list[Verdict]:
    """A judge's live scores as verdicts on nodes; the item is the node's id, the source the node's, if told.

    Raises: BadInput where it gives scores of several names and none is chosen, an array of values, or a
        value that is no verdict.
    """
    scores = list(tree.scores(producer=judge.producer.id, name=name))
    names = sorted({score.name for score in scores})
    if len(names) > 1 and len({score.node for score in scores}) < len(scores):
        raise BadInput(
            f"judge {judge.label!r} gives a node scores of {len(names)} names", hint=f"--name {names[0]}"
        )
    nodes = {node.id: node for node in tree.nodes(dict.fromkeys(score.node for score in scores))}
    found = []
    for score in scores:
        where = f"score {score.name} of node {score.node[:12]}"
        if not isinstance(score.value, float):
            raise BadInput("it has a value for every token, not a verdict", where=where)
        source = nodes[score.node].extra.get("source")
        value = verdict_value(score.value, where, threshold)
        found.append(
            Verdict(
                _id(score), judge.label, score.node, value,
                source if isinstance(source, str) else None,
            )
        )  # fmt: skip
    return found


def _id(score: Score) -> str:
    """A score's id in reports: node, name, and eight digits of its producer."""
    return f"{score.node}/{score.name}@{score.producer[:8]}"


def stale_on_tree(tree: Tree, old: TreeJudge, judged: Collection[str] = ()) -> Stale:
    """Scores that retiring a judge takes out of sight, with all that read it; ``judged`` as in a gate."""
    labels = {one.producer.id: one.label for one in tree_judges(tree)}
    reads = {one.id: one.reads for one in tree.producers()}
    gone = chain(reads, old.producer.id)
    ids: list[str] = []
    covered: list[str] = []
    waiting: dict[str, None] = {}
    for producer in gone:
        for score in tree.scores(producer=producer):
            ids.append(_id(score))
            if producer != old.producer.id:
                continue
            if score.node in judged:
                covered.append(ids[-1])
            else:
                waiting[score.node] = None
    total = sum(1 for _ in tree.scores())
    return Stale(
        tuple(labels[one] for one in gone), tuple(ids), tuple(covered), tuple(waiting), total - len(ids)
    )
