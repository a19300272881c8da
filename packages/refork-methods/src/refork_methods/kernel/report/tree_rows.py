"""The search tree as rows, a child below its parent and one step further in; large trees folded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from refork_methods.kernel.report.folder import Node

#: Kernels that get a row of their own; the others are counted where they hang.
MOST = 300


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One row: a kernel (``node``), or those folded below ``parent``: how many, and how many are right.

    ``parent`` is the row's number of what it hangs on, -1 for the original; ``last`` its depth's last child.
    """

    node: Node | None
    depth: int
    parent: int
    folded: int = 0
    right: int = 0


def tree_rows(nodes: Sequence[Node], path: Sequence[int], most: int = MOST) -> list[Row]:
    """The rows from the original down, children in the order in which they were tried.

    Of more than ``most`` kernels the way to the best has rows, then the fastest with all above them, then
    the earliest failed ones; the others are folded into one row for each parent.
    """
    if not nodes:
        return []
    children: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.parent is not None:
            children[node.parent].append(node)
    kept = _selected_nodes(nodes, path, most)
    below = _below(nodes)
    rows: list[Row] = []
    waiting: list[tuple[Node | list[Node], int, int]] = [(nodes[0], 0, -1)]
    while waiting:
        one, depth, parent = waiting.pop()
        if isinstance(one, list):
            counts = [below[node.number] for node in one]
            rows.append(Row(None, depth, parent, sum(n for n, _ in counts), sum(ok for _, ok in counts)))
            continue
        at = len(rows)
        rows.append(Row(one, depth, parent))
        folded = [child for child in children[one.number] if child.number not in kept]
        if folded:
            waiting.append((folded, depth + 1, at))
        waiting += [
            (child, depth + 1, at) for child in reversed(children[one.number]) if child.number in kept
        ]
    return rows


def _selected_nodes(nodes: Sequence[Node], path: Sequence[int], most: int) -> set[int]:
    """Numbers with a row; with each also all above it."""
    known = {node.number: node for node in nodes}
    kept = {nodes[0].number, *path}
    ranked = sorted(
        nodes, key=lambda node: (not node.evaluated.ok, -(node.evaluated.speedup or 0.0), node.number)
    )
    for node in ranked:
        new: list[int] = []
        at: int | None = node.number
        while at is not None and at not in kept:
            new.append(at)
            at = known[at].parent
        if len(kept) + len(new) <= most:
            kept.update(new)
    return kept


def _below(nodes: Sequence[Node]) -> dict[int, tuple[int, int]]:
    """For each kernel: how many it and those below it are, and how many of these are right."""
    found = {node.number: (1, int(node.evaluated.ok)) for node in nodes}
    # Parents come before their children in the record.
    for node in reversed(nodes):
        if node.parent is not None:
            (n, ok), (more, fine) = found[node.parent], found[node.number]
            found[node.parent] = (n + more, ok + fine)
    return found
