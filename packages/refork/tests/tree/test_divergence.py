"""Where two trajectories part, and how texts differ word by word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.report.diff import pieces
from refork.tree import NewNode, Tree
from refork.tree.divergence import divergence


@pytest.fixture
def tree():
    made = Tree.memory()
    task = made.append(NewNode(kind="task", key="t", text="go"))[0]
    step = made.append(
        NewNode(
            kind="action", parent=task.id, key="s", text="take the lamp", tokens=[1, 2, 3], offsets=[4, 8, 13]
        )
    )[0]
    made.append(NewNode(kind="observation", parent=step.id, key="whole", text="lit"))
    other = made.append(
        NewNode(kind="action", parent=step.id, keep=2, key="cut", text="key", tokens=[4], offsets=[3])
    )[0]
    made.append(NewNode(kind="observation", parent=other.id, key="o", text="unlit"))
    return made


def marks(found):
    return [(one.text, one.mark) for one in found]


def test_walks_that_part_inside_a_step(tree):
    left, right = (tree.path(leaf) for leaf in tree.leaves())
    found = divergence(left, right)
    assert (found.node.text, found.keep, found.shared) == ("take the lamp", 2, 2)
    first, second = found.rows
    assert (marks(first.before), marks(first.after)) == ([(" lamp", "gone")], [("key", "new")])
    assert (first.left.text, first.right.text) == ("take the lamp", "key")
    assert (marks(second.before), marks(second.after)) == ([("lit", "gone")], [("unlit", "new")])


def test_it_is_the_mirror_image_the_other_way_round(tree):
    left, right = (tree.path(leaf) for leaf in tree.leaves())
    there, back = divergence(left, right), divergence(right, left)
    assert (there.node, there.keep) == (back.node, back.keep)
    flipped = {"gone": "new", "new": "gone", "same": "same"}
    for one, other in zip(there.rows, back.rows, strict=True):
        assert [(s.text, flipped[s.mark]) for s in one.before] == marks(other.after)


def test_a_walk_that_is_the_beginning_of_another(tree):
    longer = tree.path(next(iter(tree.leaves())))
    found = divergence(tree.path(longer.steps[1].node), longer)
    assert (found.node.text, found.keep, found.shared) == ("take the lamp", None, 2)
    (rung,) = found.rows
    assert rung.left is None
    assert marks(rung.after) == [("lit", "new")]
    assert divergence(longer, longer).rows == ()


def test_other_tasks_are_refused(tree):
    other = tree.append(NewNode(kind="task", key="u", text="stay"))[0]
    with pytest.raises(BadInput, match="different tasks"):
        divergence(tree.path(other), tree.path(next(iter(tree.leaves()))))


def test_stretches_by_words():
    before, after = pieces("open the red door now", "open the blue window now")
    assert marks(before) == [("open the ", "same"), ("red door", "gone"), (" now", "same")]
    assert marks(after) == [("open the ", "same"), ("blue window", "new"), (" now", "same")]


def test_very_long_middles_are_shown_whole():
    before, after = pieces("a " + "b " * 3000, "a " + "c " * 3000)
    assert [len(before), len(after)] == [3, 3]  # the space at the end is the same


@given(st.text("ab \n", max_size=30), st.text("ab \n", max_size=30))
def test_nothing_of_the_texts_is_lost(old, new):
    before, after = pieces(old, new)
    assert "".join(one.text for one in before) == old
    assert "".join(one.text for one in after) == new
    assert {one.mark for one in before} <= {"same", "gone"}
    assert {one.mark for one in after} <= {"same", "new"}
    assert old != new or all(one.mark == "same" for one in (*before, *after))
