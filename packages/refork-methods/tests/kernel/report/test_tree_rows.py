"""Rows of the search tree: every kernel is shown or counted."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from refork_methods.kernel.bench.result import Evaluated
from refork_methods.kernel.report.folder import Node
from refork_methods.kernel.report.tree_picture import tree_rows


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    size = draw(st.integers(1, 60))
    nodes = []
    for number in range(size):
        parent = None if number == 0 else draw(st.integers(0, number - 1))
        speed = draw(st.one_of(st.none(), st.floats(0.1, 50)))
        told = Evaluated(ok=speed is not None, stage="done" if speed else "build", speedup=speed)
        nodes.append(Node(number=number, parent=parent, evaluated=told))
    return nodes


def way(nodes: list[Node], number: int) -> list[int]:
    found = [number]
    while (parent := nodes[found[-1]].parent) is not None:
        found.append(parent)
    return found[::-1]


@given(trees(), st.integers(1, 80))
def test_every_kernel_is_shown_or_counted(nodes: list[Node], most: int) -> None:
    path = way(nodes, len(nodes) - 1)
    rows = tree_rows(nodes, path, most)
    shown = [row.node.number for row in rows if row.node is not None]
    assert len(shown) == len(set(shown))
    assert len(shown) + sum(row.folded for row in rows) == len(nodes)
    ok = sum(node.evaluated.ok for node in nodes)
    assert sum(nodes[number].evaluated.ok for number in shown) + sum(row.right for row in rows) == ok
    assert set(path) <= set(shown)
    assert len(shown) <= max(most, len(path))
    for row in rows:
        if row.parent >= 0:
            above = rows[row.parent]
            assert above.node is not None
            assert above.depth == row.depth - 1
            if row.node is not None:
                assert row.node.parent == above.node.number


@given(trees())
def test_a_small_tree_is_whole_and_in_order(nodes: list[Node]) -> None:
    rows = tree_rows(nodes, [0])
    assert not any(row.folded for row in rows)
    for row, after in pairwise(rows):
        assert after.depth <= row.depth + 1
    for at in range(len(rows)):
        below = [row.node.number for row in rows if row.parent == at and row.node is not None]
        assert below == sorted(below)


def test_nothing_has_no_rows() -> None:
    assert tree_rows([], []) == []
