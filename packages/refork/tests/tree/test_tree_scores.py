from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput, BadPoint, DrawConflict, UnknownNode
from refork.tree import DrawRecord, ForkRecord, Producer, Score, Tree
from tree.tree_builders import small, step


def test_scores_come_back(tree):
    root, actions, _ = small(tree)
    judge = tree.add_producer(Producer("judge", config={"a": 1}))
    assert tree.add_producer(Producer("judge", config={"a": 1})) == judge
    array = np.linspace(0, 1, root.length)
    assert (
        tree.add_scores([Score(root.id, "v", 0.0, judge, "why"), Score(root.id, "credit", array, judge)]) == 2
    )
    assert tree.add_scores([]) == 0
    value, credit = tree.scores(root)
    assert (value.value, value.reason, value.name, value.producer) == (0.0, "why", "v", judge)
    np.testing.assert_array_equal(credit.value, array)
    assert tree.score_map("v", [root, actions[0].id]) == {root.id: 0.0}
    assert tree.score_map("credit", [root]) == {}
    assert [p.config for p in tree.producers()] == [{"a": 1}]


@pytest.mark.parametrize(
    ("config", "id_"),
    [
        ({}, "c0f14cb4ded3c1b7d8735dafe430920a"),
        ({"b": [1, (2.5, None)], "a": {"é": True}}, "a538213ddda34653fa02816ba469ccbe"),
        ({1: "a", 2: "b", 10: "c"}, None),
        ({"x": {2: "b", 10: ({3: 1, 20: 2},)}}, None),
        ({1: "a", "b": 2, None: 3, False: 4}, None),
    ],
)
def test_a_producer_that_is_read_again_is_the_same(tree, config, id_):
    """The digest of what JSON makes of its config; with text keys it is what it always was."""
    judge = Producer("judge", config=config)
    assert id_ in (None, judge.id)
    tree.add_producer(judge)
    (found,) = tree.producers()
    assert found.id == judge.id
    (node,) = tree.append(step("task", "t", key="t"))
    tree.add_scores([Score(node.id, "v", 1.0, judge.id)])
    with Tree.memory() as other:
        other.merge(tree)
        assert [score.producer for score in other.scores()] == [judge.id]


@pytest.mark.parametrize("field", [{"name": 7}, {"version": 2}, {"config": ["a"]}])
def test_a_producer_of_other_kinds_is_refused(tree, field):
    with pytest.raises(BadInput, match=f"producer's {next(iter(field))} is a"):
        tree.add_producer(Producer(**{"name": "judge"} | field))
    assert tree.producers() == []


def test_filters(tree):
    root, actions, fork = small(tree)
    a, b = (tree.add_producer(Producer(name)) for name in "ab")
    tree.add_scores(
        [Score(n.id, name, 1.0, p) for n in [root, *actions, fork] for name in "xy" for p in (a, b)]
    )
    assert sum(1 for _ in tree.scores()) == 24
    assert sum(1 for _ in tree.scores(name="x", producer=a)) == 6
    assert sum(1 for _ in tree.scores(actions[0], name="x")) == 2
    assert {s.node for s in tree.scores(under=actions[0])} == {actions[0].id, fork.id}
    assert list(tree.scores(name="z")) == []


def test_the_same_score_again_is_stored_once_and_another_is_refused(tree):
    root, *_ = small(tree)
    judge = tree.add_producer(Producer("judge"))
    array = np.arange(float(root.length))
    given_scores = [Score(root.id, "v", 1.0, judge), Score(root.id, "w", array, judge)]
    assert tree.add_scores(given_scores) == 2
    assert tree.add_scores(given_scores) == 0
    for wrong in (
        Score(root.id, "v", 2.0, judge),
        Score(root.id, "w", array + 1, judge),
        Score(root.id, "v", array, judge),
    ):
        with pytest.raises(BadInput, match="never overwritten"):
            tree.add_scores([Score(root.id, "new", 1.0, judge), wrong])
    with pytest.raises(BadInput, match="never overwritten"):
        tree.add_scores([Score(root.id, "u", 1.0, judge), Score(root.id, "u", 2.0, judge)])
    assert {s.name for s in tree.scores()} == {"v", "w"}


def test_bad_scores(tree):
    root, *_ = small(tree)
    judge = tree.add_producer(Producer("judge"))
    bad = [
        float("nan"),
        None,
        "x",
        np.full(root.length, "x"),
        np.zeros(2),
        np.full(root.length, np.nan),
        np.zeros((root.length, 1)),
    ]
    for value in bad:
        with pytest.raises(BadInput):
            tree.add_scores([Score(root.id, "v", value, judge)])
    with pytest.raises(UnknownNode):
        tree.add_scores([Score("0" * 32, "v", 1.0, judge)])
    with pytest.raises(BadInput, match="add_producer"):
        tree.add_scores([Score(root.id, "v", 1.0, "unknown")])
    assert list(tree.scores()) == []


def test_the_newest_live_producer_speaks(tree):
    root, actions, _ = small(tree)
    old, new = tree.add_producer(Producer("j", "1")), tree.add_producer(Producer("j", "2"))
    tree.add_scores(
        [Score(root.id, "v", 2.0, new), Score(root.id, "v", 1.0, old), Score(actions[0].id, "v", 3.0, old)]
    )
    assert tree.score_map("v", [root, actions[0]]) == {root.id: 2.0, actions[0].id: 3.0}
    assert tree.score_map("v", [root], producer=old) == {root.id: 1.0}
    tree.retire(new, "bug")
    assert tree.score_map("v", [root]) == {root.id: 1.0}
    assert tree.score_map("v", [root], producer=new) == {}


def test_retirement_follows_the_chain_and_says_what_was_lost(tree):
    root, *_ = small(tree)
    first = tree.add_producer(Producer("first"))
    second = tree.add_producer(Producer("second", reads=(first,)))
    third = tree.add_producer(Producer("third", reads=(second,)))
    apart = tree.add_producer(Producer("apart"))
    tree.add_scores(
        [Score(root.id, n, 1.0, p) for n, p in (("a", first), ("b", second), ("b", third), ("a", apart))]
    )
    lost = tree.retire(first, "it was wrong")
    assert lost.producers == (first, second, third)
    assert lost.scores == {"a": 1, "b": 2}
    assert [s.producer for s in tree.scores()] == [apart]
    assert sum(1 for _ in tree.scores(retired=True)) == 4
    assert [p.name for p in tree.producers()] == ["apart"]
    assert [p.name for p in tree.producers(retired=True)] == ["first", "second", "third", "apart"]
    assert [(r.producer, r.reason) for r in tree.retirements()] == [
        (p, "it was wrong") for p in (first, second, third)
    ]
    assert tree.retire(first, "again").scores == {}
    with pytest.raises(BadInput, match="retired"):
        tree.add_scores([Score(root.id, "c", 1.0, second)])
    with pytest.raises(BadInput, match="retired"):
        tree.add_producer(Producer("late", reads=(third,)))
    with pytest.raises(BadInput, match="not in this tree"):
        tree.add_producer(Producer("late", reads=("nobody",)))
    with pytest.raises(BadInput, match="name"):
        tree.add_producer(Producer(""))
    with pytest.raises(BadInput, match="no producer"):
        tree.retire("nobody", "x")


@given(st.data())
def test_retiring_takes_exactly_what_is_reachable(data):
    with Tree.memory() as tree:
        root, *_ = small(tree)
        ids, reads = [], {}
        for number in range(data.draw(st.integers(1, 7))):
            sources = data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
            ids.append(tree.add_producer(Producer(str(number), reads=tuple(sources))))
            reads[ids[-1]] = set(sources)
        tree.add_scores([Score(root.id, "v", float(i), p) for i, p in enumerate(ids)])
        start = data.draw(st.sampled_from(ids))
        gone = {start}
        for producer in ids:  # in order of registration, so sources are settled before their readers
            if reads[producer] & gone:
                gone.add(producer)
        lost = tree.retire(start, "x")
        assert lost.producers[0] == start
        assert set(lost.producers) == gone
        assert lost.scores == {"v": len(gone)}
        assert {s.producer for s in tree.scores()} == set(ids) - gone


def test_forks_and_draws(tree):
    root, actions, fork = small(tree)
    arm = ForkRecord(
        "f",
        actions[0].id,
        3,
        {"kind": "remove"},
        {"name": "p"},
        {"top_k": 3},
        "lock",
        -5,
        2**64 - 1,
        {"a": [1]},
    )
    assert tree.begin_fork(arm) == arm
    assert tree.begin_fork(arm) == arm
    assert tree.fork_record("f") == arm
    assert list(tree.forks()) == list(tree.forks(actions[0])) == [arm]
    assert list(tree.forks(root)) == []
    done = [DrawRecord("f", 1, fork.id, "error", "broke"), DrawRecord("f", 0, actions[1].id, "limit")]
    assert tree.finish_draws(done) == 2
    assert tree.finish_draws(done) == 0
    assert tree.finish_draws([]) == 0
    assert tree.draws("f") == done[::-1]
    assert tree.draws("g") == []
    with pytest.raises(DrawConflict, match="another result"):
        tree.finish_draws([DrawRecord("f", 2, fork.id, "done"), DrawRecord("f", 1, fork.id, "done")])
    assert len(tree.draws("f")) == 2
    with pytest.raises(DrawConflict, match="another seed"):
        tree.begin_fork(
            ForkRecord("f", actions[0].id, 3, arm.change, arm.policy, arm.settings, "lock", 0, arm.stream)
        )


def test_bad_forks_and_draws(tree):
    root, *_ = small(tree)
    with pytest.raises(UnknownNode):
        tree.begin_fork(ForkRecord("f", "0" * 32, None, None, {}, {}, None, 0, 0))
    with pytest.raises(BadPoint):
        tree.begin_fork(ForkRecord("f", root.id, 99, None, {}, {}, None, 0, 0))
    with pytest.raises(BadInput, match="needs an id"):
        tree.begin_fork(ForkRecord("", root.id, None, None, {}, {}, None, 0, 0))
    with pytest.raises(BadInput, match="no fork"):
        tree.fork_record("f")
    tree.begin_fork(ForkRecord("f", root.id, None, None, {}, {}, None, 0, 0))
    for record in (
        DrawRecord("g", 0, root.id, "done"),
        DrawRecord("f", 0, root.id, "bored"),
        DrawRecord("f", -1, root.id, "done"),
    ):
        with pytest.raises(BadInput):
            tree.finish_draws([record])
    with pytest.raises(UnknownNode):
        tree.finish_draws([DrawRecord("f", 0, "0" * 32, "done")])


def test_stats(tree):
    root, _, fork = small(tree)
    judge = tree.add_producer(Producer("judge"))
    tree.add_scores([Score(root.id, "v", 1.0, judge)])
    stats = tree.stats()
    assert stats.nodes == len(tree) == 6
    assert stats.kinds == {"action": 5, "task": 1}
    assert (stats.tasks, stats.leaves, stats.max_depth) == (1, 4, 2)
    assert stats.tokens == 7 + 4 * 5 + 6
    assert stats.policies == {"p": 5}
    assert [(s.name, s.label, s.count, s.retired) for s in stats.scores] == [("v", "judge 1", 1, False)]
    assert stats.bytes > 0
    assert fork.depth == 2
    assert Tree.memory().stats().nodes == 0
    assert step("task", "ab").tokens is not None
