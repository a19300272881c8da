"""The tree as lines and windows: exact against a trajectory, and against a naive reading of random trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput, UnknownNode
from refork.tree import DrawRecord, ForkRecord, NewNode, Producer, Score, Tree
from refork.tree.browse import Filter
from refork.tree.view import TreeView
from refork.tree.window import PARTS, SNIPPET, WINDOW


def grown(parents):
    """A tree in which node i + 1 hangs on node ``parents[i]``; ids in order of writing."""
    tree = Tree.memory()
    ids = [tree.append(NewNode(kind="task", key="0", text="task 0"))[0].id]
    for number, parent in enumerate(parents, start=1):
        draft = NewNode(kind="action", parent=ids[parent], key=str(number), text=f"step {number}")
        ids.append(tree.append(draft)[0].id)
    return tree, ids


#: 0 - 1 - 2 < (3 - 4, 5 < (6, 7)), as parents of 1, 2, ...
SMALL = [0, 1, 2, 3, 2, 5, 5]


def scored(tree, values):
    judge = tree.add_producer(Producer("judge"))
    tree.add_scores([Score(node, "success", value, judge) for node, value in values.items()])
    return judge


def test_runs_are_joined_and_only_forks_indent():
    tree, ids = grown(SMALL)
    scored(tree, {ids[4]: 1.0, ids[6]: 0.0, ids[7]: 0.5})
    view = TreeView(tree)
    lines = view.lines(ids[0])
    shown = view.window(lines, range(len(lines)))
    assert [[part.id for part in one.parts] for one in shown] == [
        [ids[0], ids[1], ids[2]],
        [ids[3], ids[4]],
        [ids[5]],
        [ids[6]],
        [ids[7]],
    ]
    assert lines.levels.tolist() == [0, 1, 1, 2, 2]
    assert lines.sizes.tolist() == [5, 1, 3, 1, 1]
    assert lines.spans.tolist() == [3, 2, 1, 1, 1]
    assert [one.last for one in shown] == [ids[2], ids[4], ids[5], ids[6], ids[7]]
    assert [one.below for one in shown] == [7, 1, 2, 0, 0]
    assert [one.leaves for one in shown] == [3, 1, 2, 1, 1]
    assert [one.mean for one in shown] == [0.5, 1.0, 0.25, 0.0, 0.5]
    assert [one.scored for one in shown] == [3, 1, 2, 1, 1]
    assert shown[1].parts[1].value == 1.0


def test_every_step_is_a_line_where_asked_for():
    tree, ids = grown(SMALL)
    lines = TreeView(tree).lines(ids[0], joined=False)
    assert [number.hex() for (number,) in tree._db.rows("SELECT id FROM nodes ORDER BY row")] == ids
    assert (lines.rows - 1).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert lines.levels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert lines.sizes.tolist() == [8, 7, 6, 2, 1, 3, 1, 1]
    assert np.isnan(lines.means).all()
    assert lines.score is None


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(*(st.integers(0, i) for i in range(n)))), st.booleans())
def test_lines_agree_with_a_walk(parents, joined):
    tree, ids = grown(parents)
    view = TreeView(tree)
    lines = view.lines(ids[0], joined=joined)
    number = {id_: row for row, id_ in enumerate(ids, start=1)}
    assert lines.order.tolist() == [number[node.id] for node in tree.walk(ids[0])]
    children = {id_: [c.id for c in tree.children(id_)] for id_ in ids}
    above = {child: id_ for id_, found in children.items() for child in found}
    level = {ids[0]: 0}
    for id_ in ids[1:]:
        level[id_] = level[above[id_]] + (len(children[above[id_]]) > 1)
    heads = [
        node.id
        for node in tree.walk(ids[0])
        if not joined or node.id == ids[0] or len(children[above[node.id]]) > 1
    ]
    assert lines.rows.tolist() == [number[id_] for id_ in heads]
    assert lines.levels.tolist() == [level[id_] for id_ in heads]
    for line, id_ in enumerate(heads):
        below = {node.id for node in tree.walk(id_)}
        assert lines.sizes[line] == sum(head in below for head in heads)
        assert lines.below[line] == len(below) - 1
        assert view.line_of(lines, id_) == line


def test_a_window_is_bounded_and_long_runs_show_their_ends():
    tree, ids = grown([*range(PARTS + 3)])
    tree.append(
        NewNode(kind="action", parent=ids[-1], key="long", text="x" * (SNIPPET + 1), error="it broke")
    )
    view = TreeView(tree)
    lines = view.lines(ids[0])
    (shown,) = view.window(lines, [0, 7, -1])
    assert shown.span == PARTS + 5
    assert [part.text for part in shown.parts[:-1]] == ["task 0", "step 1", "step 2"]
    last = shown.parts[-1]
    assert (last.text, last.length, last.error) == ("x" * SNIPPET, SNIPPET + 1, "it broke")
    with pytest.raises(BadInput, match="501 lines"):
        view.window(lines, range(WINDOW + 1))


def test_search_finds_texts_as_they_stand():
    tree, ids = grown(SMALL)
    tree.append(NewNode(kind="verdict", parent=ids[7], key="v", text="100 % sure_\\", error="odd"))
    view = TreeView(tree)
    lines = view.lines(ids[0])
    assert view.search(lines, "STEP 3").lines == [1]
    assert view.search(lines, "step").rows == [2, 3, 4, 5, 6, 7, 8]
    assert view.search(lines, "0 % sure_\\").lines == [4]
    assert view.search(lines, "0 _ sure").lines == []
    assert view.search(lines, kind="verdict").lines == [4]
    assert view.search(lines, errors=True).rows == [9]
    assert view.search(lines, "nowhere").lines == []
    with pytest.raises(BadInput, match="nothing to look for"):
        view.search(lines)


def test_the_case_of_a_to_z_alone_is_set_aside(tree):
    task = tree.append(NewNode(kind="task", key="0", text="École ÀÉ_ßİ 100 % Straße"))[0].id
    view = TreeView(tree)
    lines = view.lines(task)
    for text in ("École", "ÉCOLE", "Écol", "ÀÉ_ß", "ßİ", "STRAßE"):
        assert view.search(lines, text).rows == [1]
        assert view.tasks(Filter(text)).total == 1
    for text in ("école", "àé_ß", "SS", "i̇"):
        assert view.search(lines, text).rows == []
        assert view.tasks(Filter(text)).total == 0


def test_what_simulators_answered_is_kept_apart():
    tree, ids = grown([0, 0])
    tree.append(NewNode(kind="observation", parent=ids[1], key="s", text="seen", origin="simulated"))
    (made,) = [node for node in tree.walk() if node.origin == "simulated"]
    scored(tree, {made.id: 1.0, ids[2]: 0.0})
    view = TreeView(tree)
    top, first, second = view.window(view.lines(ids[0]), range(3))
    assert (top.mean, top.scored, top.leaves, top.simulated) == (0.0, 1, 2, 1)
    assert (first.mean, first.scored, first.simulated) == (1.0, 1, 1)
    assert (second.mean, second.simulated) == (0.0, 0)


def test_a_tree_that_grows_is_seen_to_grow(tmp_path):
    with Tree.open(tmp_path / "t.db") as tree:
        task = tree.append(NewNode(kind="task", key="0", text="t"))[0].id
        with Tree.open(tmp_path / "t.db", "r") as reader:
            view = TreeView(reader)
            before = view.version()
            assert len(view.lines(task, joined=False)) == 1
            assert view.policies() == []
            step = tree.append(NewNode(kind="action", parent=task, key="1", text="s", policy="walker"))[0].id
            assert view.version() != before
            assert len(view.lines(task, joined=False)) == 2
            assert view.policies() == ["walker"]
            before = view.version()
            judge = scored(tree, {step: 1.0})
            assert view.version() != before
            assert view.lines(task).means.tolist() == [1.0]
            before = view.version()
            tree.retire(judge, "wrong")
            assert view.version() != before
            assert view.lines(task).score is None


def test_the_version_is_another_one_after_each_change_that_is_shown(tree):
    view = TreeView(tree)
    found = [view.version()]
    task = tree.append(NewNode(kind="task", key="0", text="t"))[0].id
    found.append(view.version())
    judge = scored(tree, {task: 1.0})
    found.append(view.version())
    tree.begin_fork(ForkRecord("f", task, None, None, {}, {}, None, 0, 0))
    found.append(view.version())
    assert view.tasks(Filter()).tasks[0].forks == 1
    tree.finish_draws([DrawRecord("f", 0, task, "done")])
    found.append(view.version())
    tree.retire(judge, "wrong")
    found.append(view.version())
    assert len(set(found)) == len(found)
    assert view.version() == found[-1]


def test_every_store_gives_the_same_lines(tree):
    task = tree.append(NewNode(kind="task", key="0", text="Go 100 %", extra={"world": "maze"}))[0].id
    for key in "ab":
        step = tree.append(NewNode(kind="action", parent=task, key=key, text=f"Step {key}", policy="p"))[0].id
        tree.append(NewNode(kind="verdict", parent=step, key="v", text="won"))
    scored(tree, {node.id: float(at) for at, node in enumerate(tree.leaves())})
    view = TreeView(tree)
    lines = view.lines(task)
    shown = view.window(lines, range(len(lines)))
    assert [(one.leaves, one.mean, len(one.parts)) for one in shown] == [
        (2, 0.5, 1),
        (1, 0.0, 2),
        (1, 1.0, 2),
    ]
    assert view.search(lines, "STEP B").lines == [2]
    assert view.line_of(lines, shown[1].last) == 1
    assert [line.mean for line in view.tasks(Filter("100 %", world="maze", low=0.1)).tasks] == [0.5]
    assert view.side_by_side("success").versions[0].mean == 0.5
    assert [one.value for one in view.node_scores(shown[2].last)] == [1.0]
    assert len(view.branches(task)) == 2
    assert (view.branch_counts([task]), view.policies(), view.worlds()) == (
        {task: {None: 2}},
        ["p"],
        ["maze"],
    )
    assert view.version() == view.version()


def test_what_is_no_task_or_no_score_is_refused():
    tree, ids = grown(SMALL)
    view = TreeView(tree)
    with pytest.raises(BadInput, match="no task"):
        view.lines(ids[3])
    with pytest.raises(UnknownNode):
        view.lines("ffff")
    with pytest.raises(BadInput, match="no score 'success'"):
        view.lines(ids[0], "success")


def test_branches_of_a_node():
    tree, ids = grown(SMALL)
    scored(tree, {ids[4]: 1.0, ids[6]: 0.0, ids[7]: 0.5})
    view = TreeView(tree)
    first, second = view.branches(ids[2])
    assert (first.child.id, first.leaf, first.leaves, first.mean) == (ids[3], ids[4], 1, 1.0)
    assert (second.child.id, second.leaf, second.leaves, second.mean) == (ids[5], ids[6], 2, 0.25)
    assert view.branches(ids[7]) == []
    assert view.branch_counts([ids[2], ids[7]]) == {ids[2]: {None: 2}}


def test_infinite_scores_of_both_signs_have_no_mean(tree):
    task = tree.append(NewNode(kind="task", key="0", text="t"))[0].id
    sides = [tree.append(NewNode(kind="action", parent=task, key=k, text=k))[0].id for k in "ab"]
    ends = [
        tree.append(NewNode(kind="action", parent=side, key=k, text=k))[0].id for side in sides for k in "cd"
    ]
    inf = float("inf")
    scored(tree, dict(zip(ends, (inf, -inf, inf, 1.0), strict=True)))
    strict = tree.add_producer(Producer("strict"))
    tree.add_scores([Score(ends[2], "success", inf, strict)])
    view = TreeView(tree)
    lines = view.lines(task, joined=False)
    shown = [(one.mean, one.scored) for one in view.window(lines, range(len(lines)))]
    assert shown == [(None, 4), (None, 2), (inf, 1), (-inf, 1), (inf, 2), (inf, 1), (1.0, 1)]
    assert [(line.mean, line.scored) for line in tree.outline().lines] == shown
    assert [(one.mean, one.scored) for one in view.branches(task)] == [(None, 2), (inf, 2)]
    assert [(line.mean, line.scored) for line in view.tasks(Filter()).tasks] == [(None, 4)]
    assert [(line.mean, line.scored) for line in tree.origins()] == [(None, 4)]
    side = view.side_by_side("success")
    assert [version.mean for version in side.versions] == [None, inf]
    assert (side.compared, side.differing, side.nodes) == (1, 0, ())


def test_branches_that_keep_a_part_are_counted_by_token():
    tree = Tree.memory()
    task = tree.append(NewNode(kind="task", text="abc", tokens=[1, 2, 3], offsets=[1, 2, 3]))[0].id
    tree.append([NewNode(kind="action", parent=task, keep=2, key=k, text="x") for k in "ab"])
    tree.append(NewNode(kind="action", parent=task, key="c", text="x"))
    assert TreeView(tree).branch_counts([task]) == {task: {2: 2, None: 1}}


class TestTasks:
    @pytest.fixture
    def view(self):
        tree = Tree.memory()
        for number, world in enumerate(["maze", "lock", "maze", None]):
            extra = {} if world is None else {"world": world}
            task = tree.append(NewNode(kind="task", key=str(number), text=f"Task {number} %", extra=extra))[0]
            for leaf in range(number):
                tree.append(NewNode(kind="action", parent=task.id, key=str(leaf), text="x"))
        leaves = [node for node in tree.leaves() if node.kind == "action"]
        scored(tree, {node.id: float(at < 2) for at, node in enumerate(leaves)})
        return TreeView(tree)

    def names(self, page):
        return [line.text for line in page.tasks]

    def test_counts_and_means(self, view):
        page = view.tasks(Filter())
        assert [(line.nodes, line.leaves, line.mean, line.scored) for line in page.tasks] == [
            (1, 1, None, 0),
            (2, 1, 1.0, 1),
            (3, 2, 0.5, 2),
            (4, 3, 0.0, 3),
        ]
        assert (page.total, page.all) == (4, 4)
        assert view.worlds() == ["lock", "maze"]

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            (Filter("task 2"), [2]),
            (Filter("%"), [0, 1, 2, 3]),
            (Filter(world="maze"), [0, 2]),
            (Filter(low=0.5), [1, 2]),
            (Filter(high=0.5), [2, 3]),
            (Filter(low=0.4, high=0.6), [2]),
            (Filter(forked=True), []),
            (Filter("nothing"), []),
        ],
    )
    def test_filters(self, view, wanted, found):
        assert self.names(view.tasks(wanted)) == [f"Task {number} %" for number in found]

    def test_orders_and_pages(self, view):
        for order, found in (("lowest", [3, 2, 1, 0]), ("highest", [1, 2, 3, 0]), ("largest", [3, 2, 1, 0])):
            assert self.names(view.tasks(Filter(), order)) == [f"Task {number} %" for number in found]
        page = view.tasks(Filter(), "lowest", start=1, count=2)
        assert (self.names(page), page.total) == (["Task 2 %", "Task 1 %"], 4)

    def test_nonsense_is_refused(self, view):
        with pytest.raises(BadInput, match="at least 1 and at most 0"):
            Filter(low=1, high=0)
        with pytest.raises(BadInput, match="order 'best'"):
            view.tasks(Filter(), "best")
        with pytest.raises(BadInput, match="no score 'elegance'"):
            view.tasks(Filter(), score="elegance")
