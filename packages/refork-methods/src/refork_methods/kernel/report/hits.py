"""Which tools' advice was taken, and what it brought.

Source: arXiv 2606.26453, its table of tools (how often one fires, how often a large gain follows, the mean
gain). How a try is ascribed to a tool is ours: by the tools that its move says it answers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from refork_methods.kernel.report.folder import Node

#: A gain over the parent above this is a large one.
LARGE = 1.5


@final
@dataclass(frozen=True, slots=True)
class Hit:
    """One tool over a search.

    ``fires``: kernels on which it found something. ``acted``: tries that answered it, on such a kernel.
    ``right``: those that gave a right kernel. ``large``: the share of the tries from a right kernel that
    made it more than 1.5 times as fast, a failed try counting as none. ``gain``: the geometric mean of
    the parent's seconds over the child's, over right ones. None: no try to tell from.
    """

    tool: str
    fires: int
    acted: int
    right: int
    large: float | None
    gain: float | None


def hit_table(nodes: Sequence[Node]) -> tuple[Hit, ...]:
    """A row for each tool that fired, the most used first."""
    known = {node.number: node for node in nodes}
    fires: dict[str, int] = defaultdict(int)
    tries: dict[str, list[tuple[Node, Node]]] = defaultdict(list)
    for node in nodes:
        for tool in _tools(node):
            fires[tool] += 1
        if node.parent is None:
            continue
        parent = known[node.parent]
        for tool in sorted(set(node.answers) & _tools(parent)):
            tries[tool].append((parent, node))
    rows = [_hit(tool, number, tries[tool]) for tool, number in fires.items()]
    return tuple(sorted(rows, key=lambda row: (-row.acted, -row.fires, row.tool)))


def gain_over(parent: Node, child: Node) -> float | None:
    """How many times as fast as its parent a kernel is; None unless both were timed and are right.

    Both are first set against the reference that was timed beside them, so that a machine that grew slower
    in between does not count.
    """
    before, after = parent.evaluated, child.evaluated
    if not (before.ok and after.ok and before.speedup and after.speedup):
        return None
    return after.speedup / before.speedup


def _tools(node: Node) -> set[str]:
    return {finding.tool for finding in node.findings or ()}


def _hit(tool: str, fires: int, tries: list[tuple[Node, Node]]) -> Hit:
    gains = [gain_over(parent, child) for parent, child in tries if parent.evaluated.ok]
    known = [gain for gain in gains if gain is not None]
    return Hit(
        tool,
        fires,
        len(tries),
        sum(child.evaluated.ok for _, child in tries),
        sum(gain > LARGE for gain in known) / len(gains) if gains else None,
        math.exp(sum(math.log(gain) for gain in known) / len(known)) if known else None,
    )
