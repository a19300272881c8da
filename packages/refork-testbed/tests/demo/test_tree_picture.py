import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from refork.errors import BadInput
from refork_testbed.demo.data import TreeNode
from refork_testbed.demo.tree_layout import endings, layout, twigs_of
from refork_testbed.demo.tree_picture import tree_picture


def node(id_, parent, kind="action", label="go", success=None, leaves=1, **more):
    return TreeNode(id=id_, parent=parent, kind=kind, label=label, success=success, leaves=leaves, **more)


def marks(drawn, class_):
    root = ElementTree.fromstring(str(drawn))
    return [e for e in root.iter() if class_ in (e.get("class") or "").split()]


def test_a_run_of_events_is_one_twig():
    nodes = [
        node("a", None, "task", success=1.0),
        node("b", "a", success=1.0),
        node("c", "b", "observation", success=1.0),
    ]
    (twig,) = twigs_of(nodes)
    assert [e.id for e in twig.events] == ["a", "b", "c"]
    assert twig.children == ()


def test_equal_siblings_are_drawn_once_with_all_their_leaves():
    nodes = [node("r", None, "task", success=2 / 3, leaves=3)]
    for i, (label, won) in enumerate([("east", 0.0), ("west", 1.0), ("west", 1.0)]):
        nodes += [node(f"a{i}", "r", label=label, success=won), node(f"v{i}", f"a{i}", "verdict", "end", won)]
    (root,) = twigs_of(nodes)
    assert [(t.first.label, t.copies, t.leaves) for t in root.children] == [("west", 2, 2), ("east", 1, 1)]


def test_the_swept_run_and_forks_are_never_merged_away():
    nodes = [node("r", None, "task", success=0.0, leaves=3, on_trace=True)]
    nodes += [
        node("a", "r", success=0.0, on_trace=True),
        node("b", "r", success=0.0),
        node("c", "r", success=0.0),
    ]
    (root,) = twigs_of(nodes)
    assert sorted((t.on_trace, t.copies) for t in root.children) == [(False, 2), (True, 1)]


def test_parents_may_come_after_their_children():
    nodes = [
        node("b", "a", success=0.0),
        node("a", None, "task", success=0.5, leaves=2),
        node("c", "a", success=1.0),
    ]
    (root,) = twigs_of(nodes)
    assert [t.first.id for t in root.children] == ["c", "b"]


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node("a", None), node("a", None)], "twice"),
        ([node("a", "gone")], "unknown parent"),
        ([node("r", None), node("a", "b"), node("b", "a")], "cycle"),
    ],
)
def test_what_is_no_tree_is_refused(nodes, said):
    with pytest.raises(BadInput, match=said):
        tree_picture(nodes)


def test_places_do_not_overlap(make_report):
    plan = layout(make_report(300).tree.nodes)
    for column in range(plan.columns):
        spans = sorted((p.y - p.room / 2, p.y + p.room / 2) for p in plan.twigs if p.column == column)
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(spans))
    assert all(p.y - p.room / 2 >= 0 and p.y + p.room / 2 <= plan.height + 1e-6 for p in plan.twigs)


def star(size):
    """A root with many different endings: the worst case for rows."""
    nodes = [node("r", None, "task", success=0.5, leaves=size)]
    return nodes + [node(f"a{i}", "r", label=f"say {i}", success=float(i % 2)) for i in range(size)]


def test_many_endings_are_grouped_by_outcome():
    assert endings(twigs_of(star(300))) == 300
    plan = layout(star(300))
    assert [p.twig.leaves for p in plan.twigs] == [300, 150, 150]
    assert "150 endings" in str(tree_picture(star(300)))


@pytest.mark.parametrize("size", [10, 60, 120, 300])
def test_trees_of_every_size_stay_within_a_screen_or_two(make_report, size):
    drawn = str(tree_picture(make_report(size).tree.nodes))
    height = float(re.search(r'height="([\d.]+)"', drawn)[1])
    assert 40 <= height <= 1400
    ElementTree.fromstring(drawn)


def test_a_chain_far_deeper_than_the_call_stack_is_drawn():
    nodes = [node("0", None, "task", success=1.0)]
    nodes += [node(str(i), str(i - 1), success=1.0) for i in range(1, 3000)]
    assert len(layout(nodes).twigs) == 1


def test_none_success_is_neither_zero_nor_one():
    drawn = tree_picture([node("r", None, "task")])
    assert len(marks(drawn, "snone")) == 2
    assert [e.text for e in marks(drawn, "leaf-sign")] == ["?"]
    assert "success –" in str(drawn)


def test_forks_are_ringed_where_they_branch_off_and_stay_branches():
    nodes = [node("r", None, "task", success=0.0, leaves=2, on_trace=True)]
    nodes += [node("a", "r", success=0.0, on_trace=True), node("b", "r", success=0.0, forked=True)]
    assert len(marks(tree_picture(nodes), "fork-ring")) == 1
    (root,) = twigs_of([nodes[0], node("b", "r", success=0.0, leaves=2, on_trace=True, forked=True)])
    assert len(root.children) == 1
