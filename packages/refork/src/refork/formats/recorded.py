"""Records as a tree, for writers of formats that go by trajectories; on the disk where they are many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from refork.tree.node import Node, Trajectory
from refork.tree.records import Record
from refork.tree.score import Score

if TYPE_CHECKING:
    from refork.tree.tree import Tree

_WALKS: Final = 64
_FEW: Final = 20_000


@contextmanager
def recorded(records: Iterable[Record]) -> Iterator[Tree]:
    """A tree of records, gone afterwards: in memory while they are few."""
    from refork.tree.tree import Tree

    stream = iter(records)
    few = list(islice(stream, _FEW))
    if len(few) < _FEW:
        with Tree.memory() as tree:
            tree.load(few)
            yield tree
        return
    folder = TemporaryDirectory(prefix="refork-export-")
    with folder as place, Tree.open(Path(place) / "tree.db") as tree:
        tree.load(chain(few, stream))
        yield tree


def leaf_trajectories(tree: Tree) -> Iterator[Trajectory]:
    """The trajectories to all leaves, a few in memory at a time."""
    leaves: Iterator[Node] = iter(tree.leaves())
    while batch := list(islice(leaves, _WALKS)):
        yield from tree.paths(batch)


def scores_of(tree: Tree, node: Node) -> list[Score]:
    """The live scores of a node, in one order."""
    return sorted(tree.scores(node), key=lambda score: (score.name, score.producer))
