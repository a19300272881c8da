"""Versions of a score side by side: counts, means, disagreement, retirement."""

from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork.tree import NewNode, Producer, Score, Tree
from refork.tree.view import TreeView


@pytest.fixture
def tree():
    made = Tree.memory()
    task = made.append(NewNode(kind="task", key="t", text="task"))[0].id
    for key in "abc":
        made.append(NewNode(kind="action", parent=task, key=key, text=key, tokens=[1, 2]))
    return made


@pytest.fixture
def judged(tree):
    a, b, c = (node.id for node in tree.leaves())
    old = tree.add_producer(Producer("judge", "1"))
    new = tree.add_producer(Producer("judge", "2", {"strict": True}))
    tree.add_scores([Score(node, "success", value, old) for node, value in ((a, 1.0), (b, 1.0), (c, 0.0))])
    tree.add_scores([Score(a, "success", 1.0, new), Score(b, "success", 0.25, new, reason="too long")])
    return tree, (a, b, c), (old, new)


def test_versions_and_where_they_differ(judged):
    tree, (_, b, _), (old, new) = judged
    found = TreeView(tree).side_by_side("success")
    assert [(v.producer, v.label, v.count, v.mean, v.retired) for v in found.versions] == [
        (old, "judge 1", 3, 2 / 3, None),
        (new, "judge 2", 2, 0.625, None),
    ]
    assert found.versions[1].config == {"strict": True}
    assert (found.compared, found.differing) == (2, 1)
    (one,) = found.nodes
    assert (one.node, one.values, one.spread, one.text) == (b, (1.0, 0.25), 0.75, "b")


def test_a_retired_version_is_shown_but_not_compared(judged):
    tree, _, (old, _) = judged
    tree.retire(old, "it liked everything")
    found = TreeView(tree).side_by_side("success")
    assert [v.retired for v in found.versions] == ["it liked everything", None]
    assert (found.compared, found.differing, found.nodes) == (0, 0, ())


def test_everything_that_was_said_of_a_node(judged):
    tree, (_, b, _), (old, _) = judged
    credit = tree.add_producer(Producer("credit"))
    tree.add_scores([Score(b, "advantage", np.array([0.5, -0.5]), credit)])
    tree.retire(old, "")
    told = TreeView(tree).node_scores(b)
    assert [(s.name, s.label, s.value, s.reason, s.retired) for s in told] == [
        ("advantage", "credit 1", None, None, None),
        ("success", "judge 1", 1.0, None, "retired"),
        ("success", "judge 2", 0.25, "too long", None),
    ]
    assert told[0].array.tolist() == [0.5, -0.5]
    view = TreeView(tree)
    assert (view.array_names(), view.all_score_names()) == (["advantage"], ["advantage", "success"])
    assert view.side_by_side("advantage").versions[0].arrays == 1


def test_pages_and_refusals(judged):
    view = TreeView(judged[0])
    assert view.side_by_side("success", start=1).nodes == ()
    with pytest.raises(BadInput, match="no score 'beauty'"):
        view.side_by_side("beauty")
    with pytest.raises(BadInput, match="from -1"):
        view.side_by_side("success", start=-1)
