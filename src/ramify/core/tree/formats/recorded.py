"""Records as a tree, for writers of formats that go by walks; on the disk where they are many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from ramify.core.tree.formats.base import Record
from ramify.core.tree.node import Node, Step, Trajectory
from ramify.core.tree.score import Score
from ramify.core.types import Message

if TYPE_CHECKING:
    from ramify.core.tree.tree import Tree

_WALKS: Final = 64
_FEW: Final = 20_000


@contextmanager
def recorded(records: Iterable[Record]) -> Iterator[Tree]:
    """A tree of records, gone afterwards: in memory while they are few."""
    from ramify.core.tree.tree import Tree

    stream = iter(records)
    few = list(islice(stream, _FEW))
    if len(few) < _FEW:
        with Tree.memory() as tree:
            tree.load(few)
            yield tree
        return
    folder = TemporaryDirectory(prefix="ramify-export-")
    with folder as place, Tree.open(Path(place) / "tree.db") as tree:
        tree.load(chain(few, stream))
        yield tree


def walks_of(tree: Tree) -> Iterator[Trajectory]:
    """The walks to all leaves, a few in memory at a time."""
    leaves: Iterator[Node] = iter(tree.leaves())
    while batch := list(islice(leaves, _WALKS)):
        yield from tree.paths(batch)


def scores_of(tree: Tree, node: Node) -> list[Score]:
    """The live scores of a node, in one order."""
    return sorted(tree.scores(node), key=lambda score: (score.name, score.producer))


def continues(step: Step, before: Step | None) -> bool:
    """Whether a step goes on with the turn before it: one that was cut, or that is said in several nodes."""
    if before is None or before.node.kind != "action":
        return False
    return before.keep is not None or step.node.message is None


def said(steps: Sequence[Step]) -> Message | None:
    """What was said in the steps of one turn; None where neither text nor message was recorded."""
    node = steps[-1].node
    if len(steps) == 1 and steps[0].keep is None and node.message is not None:
        return node.message
    text = "".join(step.text for step in steps)
    return {"role": "assistant", "content": text} if text else None


def shown(step: Step) -> list[Message]:
    """The messages of a task, an observation or a rewritten context."""
    node = step.node
    if node.extra.get("messages"):
        return list(node.extra["messages"])
    if node.message is not None:
        return [node.message]
    return [{"role": "user", "content": step.text}] if step.text else []
