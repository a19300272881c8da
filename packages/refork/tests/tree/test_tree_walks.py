from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from rich.console import Console

from refork.cli.tree_view import legend, tree_table
from refork.errors import BadInput, BadPoint, UnknownNode
from refork.tree import ForkRecord, NewNode, Point, Producer, Score, Tree, node_id
from tree.tree_builders import seen, small, step, trees

relaxed = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def test_a_walk_is_cut_where_its_child_forked(tree):
    root, actions, fork = small(tree)
    trajectory = tree.path(fork)
    assert [s.node.id for s in trajectory] == [root.id, actions[0].id, fork.id]
    assert [s.keep for s in trajectory] == [None, 3, None]
    assert "".join(s.text for s in trajectory) == "go homewor-again"
    assert bytes(trajectory.tokens.tolist()).decode() == "go homewor-again"
    cut = tree.path(tree.at(fork, 2))
    assert cut.steps[-1].keep == 2
    assert [s.text for s in cut] == ["go home", "wor", "-a"]
    assert seen(trajectory.leaf) == seen(fork)


def test_a_point_by_text(tree):
    root, actions, _ = small(tree)
    assert tree.at(f"{root.id[:12]}:3").token == 3
    assert tree.at(f"{root.id}:end").token is None
    assert tree.at(root, 7).token is None
    assert tree.at(root, 0).keep == 0
    assert tree.at(Point(actions[0], 2)).token == 2
    assert tree.at(root).tree is tree
    assert [len(p) for p in tree.paths([root, actions[1].id, f"{actions[2].id}:1", tree.at(actions[3])])] == [
        1,
        2,
        2,
        2,
    ]


@pytest.mark.parametrize("token", [-1, 8, True, "x"])
def test_a_point_beyond_the_step(tree, token):
    root, *_ = small(tree)
    with pytest.raises(BadPoint):
        tree.at(root, token)
    with pytest.raises(BadPoint):
        tree.at(f"{root.id}:{token}")


@pytest.mark.parametrize("token", ["--1", "-", "²", "١", "1 ", "1_0", "+1", "1.0", "1:2", "9" * 5000])
def test_a_point_by_text_that_is_no_number(tree, token):
    root, *_ = small(tree)
    for read in (tree.at, tree.path, lambda name: tree.paths([name])):
        with pytest.raises(BadPoint, match="not a token's number"):
            read(f"{root.id}:{token}")


def test_a_point_in_a_step_without_tokens(tree):
    node = tree.append(NewNode(kind="task", text="abc"))[0]
    assert tree.at(node).keep == 0
    with pytest.raises(BadPoint, match="no token ids") as refused:
        tree.at(node, 0)
    assert refused.value.hint == "fork after the whole step"
    # Behind a whole turn without ids nobody can go on: the hint leads to where one can.
    turn = tree.append(NewNode(kind="action", parent=node.id, text="said"))[0]
    with pytest.raises(BadPoint, match="no token ids") as refused:
        tree.at(turn, 2)
    assert f"--node {node.id[:12]}" in refused.value.hint
    assert "--policy" in refused.value.hint


def test_ids_may_be_shortened_while_they_are_clear(tree):
    nodes = tree.append([NewNode(kind="task") for _ in range(40)])
    for node in nodes:
        assert tree.node(node.id[:16]).id == node.id
        assert tree.node(node.id.upper()).id == node.id
    assert len({n.id[0] for n in nodes}) < 40
    first = next(n.id[0] for n in nodes if sum(m.id[0] == n.id[0] for m in nodes) > 1)
    with pytest.raises(UnknownNode, match="several nodes"):
        tree.node(first)
    for name in ("", "xyz", "0" * 33, "f" * 31 + "e", "%", "_"):
        with pytest.raises(UnknownNode):
            tree.node(name)
        with pytest.raises(UnknownNode):
            tree.path(name)
        assert not tree.has(name)
    with pytest.raises(BadInput):
        tree.node(7)
    with pytest.raises(UnknownNode):
        tree.nodes([nodes[0].id, "0" * 32])
    with pytest.raises(UnknownNode):
        tree.paths(["0" * 32])


def test_children_by_where_they_forked(tree):
    root, actions, fork = small(tree)
    assert [n.id for n in tree.children(root)] == [n.id for n in actions]
    assert [n.id for n in tree.children(actions[0], keep=3)] == [fork.id]
    assert list(tree.children(actions[0], keep=None)) == []
    assert list(tree.children(actions[0].id, keep=5)) == []
    with pytest.raises(BadPoint):
        list(tree.children(root, keep=99))


def test_leaves_tasks_walk_and_counts(tree):
    root, actions, fork = small(tree)
    lone = tree.append(NewNode(kind="task"))[0]
    assert [n.id for n in tree.tasks()] == [root.id, lone.id]
    assert [n.id for n in tree.walk()] == [
        root.id,
        actions[0].id,
        fork.id,
        *(a.id for a in actions[1:]),
        lone.id,
    ]
    assert [n.id for n in tree.leaves()] == [a.id for a in actions[1:]] + [fork.id, lone.id]
    assert [n.id for n in tree.leaves(root)] == [fork.id, *(a.id for a in actions[1:])]
    assert [n.id for n in tree.leaves(fork)] == [fork.id]
    assert tree.descendants(root) == 5
    assert tree.descendants(lone) == 0


def test_iterators_show_the_tree_as_it_was(tree):
    root = tree.append(NewNode(kind="task"))[0]
    tree.append([NewNode(kind="action", parent=root.id) for _ in range(1200)])
    seen_so_far = []
    for walking in (tree.walk(), tree.leaves(), tree.children(root)):
        count = 0
        for _ in walking:
            count += 1
            if count < 3:
                tree.append(NewNode(kind="action", parent=root.id))
        seen_so_far.append(count)
    assert seen_so_far == [1201, 1200, 1200]


def test_iterators_of_forks_and_scores_show_the_tree_as_it_was(tree, monkeypatch):
    monkeypatch.setattr("refork.tree.arms._PAGE", 2)
    monkeypatch.setattr("refork.tree.scoring._PAGE", 2)
    root = tree.append(NewNode(kind="task"))[0]
    nodes = tree.append([NewNode(kind="action", parent=root.id, key=str(i)) for i in range(5)])
    judge = tree.add_producer(Producer("judge"))

    def more(name, leaf):
        tree.begin_fork(ForkRecord(name, root.id, None, None, {}, {}, None, 0, 0))
        tree.add_scores([Score(leaf.id, name, 1.0, judge)])

    for number, node in enumerate(nodes):
        more(f"f{number}", node)
    begun = tree.forks(), tree.forks(root), tree.scores(), tree.scores(under=root)
    for stream in begun:
        # Before the first page is asked for, and between two of them.
        more(f"late{id(stream)}", nodes[-1])
        next(stream)
        more(f"later{id(stream)}", nodes[-1])
    assert [1 + sum(1 for _ in stream) for stream in begun] == [5, 5, 5, 5]
    assert [fork.id for fork in tree.forks()][:5] == [f"f{number}" for number in range(5)]
    assert len(list(tree.scores(under=root))) == len(list(tree.scores())) == len(list(tree.forks())) == 13


def test_deep_trees(tree):
    parent = tree.append(step("task", "x"))[0].id
    drafts = []
    for i in range(3000):
        drafts.append(step("action", "ab", parent, key=str(i)))
        parent = node_id(parent, None, "action", str(i))
    tree.append(drafts)
    assert len(tree.path(parent)) == 3001
    assert tree.descendants(next(tree.tasks())) == 3000
    assert sum(1 for _ in tree.walk()) == 3001
    assert len(tree.outline().lines) == 200


def test_the_order_of_a_walk_does_not_depend_on_how_far_it_looks_ahead(tree, monkeypatch):
    nodes = [tree.append(step("task", "root"))[0].id]
    for number in range(60):
        # Chains, bushes and what lies between: each node's parent is one of the newest few.
        above = nodes[-1 - (number * number) % min(7, len(nodes))]
        nodes.append(tree.append(step("action", f"n{number}", above))[0].id)
    below: dict[str | None, list[str]] = {}
    for id_ in nodes:
        below.setdefault(tree.node(id_).parent, []).append(id_)

    def expected(id_):
        return [id_, *(found for child in below.get(id_, ()) for found in expected(child))]

    for ahead, deep in ((255, 50_000), (3, 4), (1, 1)):
        monkeypatch.setattr("refork.tree.node_reader._AHEAD", ahead)
        monkeypatch.setattr("refork.tree.node_reader._DEEP", deep)
        assert [n.id for n in tree.walk()] == expected(nodes[0])
        assert [n.id for n in tree.walk(nodes[9])] == expected(nodes[9])
        assert [n.id for n in tree.leaves(nodes[0])] == [i for i in expected(nodes[0]) if i not in below]


@relaxed
@given(trees())
def test_a_walks_tokens_are_the_kept_deltas_one_after_another(tree):
    for leaf, trajectory in zip(tree.leaves(), tree.paths(tree.leaves()), strict=True):
        assert trajectory.leaf.id == leaf.id
        assert trajectory.root.parent is None
        pairs = list(zip(trajectory.steps, trajectory.steps[1:], strict=False))
        assert all(b.node.parent == a.node.id and b.node.keep == a.keep for a, b in pairs)
        assert [s.node.depth for s in trajectory] == list(range(len(trajectory)))
        alone = tree.path(leaf)
        assert [(s.node.id, s.keep) for s in alone] == [(s.node.id, s.keep) for s in trajectory]
        pieces = [s.node.tokens[: s.keep] for s in trajectory.context if s.node.tokens is not None]
        if all(s.node.tokens is not None or not s.text for s in trajectory.context):
            expected = np.concatenate(pieces) if pieces else np.zeros(0, np.int32)
            np.testing.assert_array_equal(trajectory.tokens, expected)


@relaxed
@given(trees())
def test_the_whole_tree_is_walked_once_parents_first(tree):
    order = [n.id for n in tree.walk()]
    assert len(order) == len(set(order)) == len(tree)
    place = {id_: i for i, id_ in enumerate(order)}
    parents = {n.id: n.parent for n in tree.walk()}
    assert all(parent is None or place[parent] < place[id_] for id_, parent in parents.items())
    assert {n.id for n in tree.leaves()} == set(order) - set(parents.values())
    for node in tree.tasks():
        below = [n.id for n in tree.walk(node)]
        assert below == order[place[node.id] : place[node.id] + len(below)]
        assert tree.descendants(node) == len(below) - 1


@relaxed
@given(trees())
def test_any_tree_we_write_verifies(tree):
    assert list(tree.verify()) == []


def test_an_outline_keeps_simulated_leaves_apart():
    """Behind a simulator's answer all is simulated, and no mean is of both."""
    with Tree.memory() as tree:
        root = tree.append([step("task", "t")])[0]
        act = tree.append([step("action", "a", root.id)])[0]
        kinds = ("real", "simulated", "simulated")
        shown = tree.append([step("observation", str(i), act.id, key=str(i), origin=kind)
                             for i, kind in enumerate(kinds)])  # fmt: skip
        ends = tree.append([step("verdict", "v", one.id) for one in shown])
        judge = tree.add_producer(Producer("judge"))
        values = (1.0, 0.0, 0.5)
        tree.add_scores([Score(node=e.id, producer=judge, name="success", value=v)
                         for e, v in zip(ends, values, strict=True)])  # fmt: skip
        drawn = tree.outline()
        top = drawn.lines[0]
        assert (drawn.leaves, drawn.simulated) == (top.leaves, top.simulated) == (3, 2)
        assert (top.mean, top.scored, top.simulated_mean, top.simulated_scored) == (1.0, 1, 0.25, 2)
        said = Console(width=120, record=True, file=io.StringIO())
        said.print(tree_table(drawn, said), legend(drawn, said))
        told = said.export_text()
        assert "2 of 3 leaves are simulated" in told
        assert "1.00 simulated" in told
        assert "0.25 n=2" in told
