from __future__ import annotations

import threading

import numpy as np
import pytest

from refork.errors import BadInput, BadPoint, DrawConflict, TreeError, UnknownNode
from refork.policies.base import Cost
from refork.sampling.noise import NoiseKey
from refork.tree import DrawRecord, ForkRecord, NewNode, Producer, Score, Tree, node_id
from tree.tree_builders import seen, small, step


def test_a_node_comes_back_as_it_was_written(tree):
    draft = NewNode(
        kind="action",
        parent=tree.append(NewNode(kind="task"))[0].id,
        key="k",
        text="añb",
        tokens=np.array([1, 2, 3], np.int32),
        offsets=np.array([1, 2, 3], np.int32),
        logprobs=np.array([-0.1, -np.inf, 0.0], np.float32),
        logprobs_t1=np.array([-1, -2, -3], np.float32),
        ref_logprobs=np.array([-1, -2, -3.5], np.float32),
        entropy=np.array([0, 1, 2], np.float32),
        message={"role": "assistant", "content": "añb"},
        state_key="s",
        snapshot=b"state",
        policy="p",
        weights="w",
        settings={"max_tokens": 3},
        noise=NoiseKey(-(2**70), 2**64 - 1, 3, 4),
        fork="f",
        origin="simulated",
        finish="stop",
        error="e",
        cost=Cost(1, 2, 0.5, 0.0),
        extra={"b": [1, None], "a": {"c": 0.5}},
    )
    node = tree.append(draft)[0]
    assert seen(tree.node(node.id)) == seen(node)
    for name in ("tokens", "offsets", "logprobs", "logprobs_t1", "ref_logprobs", "entropy"):
        stored = getattr(node, name)
        np.testing.assert_array_equal(stored, getattr(draft, name))
        assert stored.dtype == getattr(draft, name).dtype
        with pytest.raises(ValueError, match="read-only"):
            stored[0] = 9
    for name in ("kind", "parent", "key", "text", "message", "noise", "cost", "extra", "settings", "fork"):
        assert getattr(node, name) == getattr(draft, name)
    assert node.id == node_id(draft.parent, None, "action", "k")
    assert node.depth == 1
    assert tree.blob(node.snapshot) == b"state"


def test_none_and_zero_are_kept_apart(tree):
    none = tree.append(NewNode(kind="task", cost=Cost(tokens_in=None, money=0.0)))[0]
    empty = tree.append(NewNode(kind="task", tokens=np.zeros(0, np.int32), logprobs=np.zeros(0, np.float32)))[
        0
    ]
    assert none.tokens is None
    assert none.cost == Cost(money=0.0)
    assert empty.tokens is not None
    assert empty.logprobs is not None
    assert len(empty.tokens) == 0


def test_parents_may_be_drafts_of_the_same_call(tree):
    root = NewNode(kind="task", key="r")
    top = node_id(None, None, "task", "r")
    middle = node_id(top, None, "action", "m")
    nodes = tree.append(
        [root, step("action", "abc", top, key="m"), step("action", "x", middle, keep=2, key="x")]
    )
    assert [n.depth for n in nodes] == [0, 1, 2]
    assert nodes[2].keep == 2


def test_equal_siblings_are_kept_apart_by_ordinals(tree):
    root = tree.append(NewNode(kind="task"))[0]
    first = tree.append([NewNode(kind="action", parent=root.id, text="same") for _ in range(3)])
    more = [tree.append(NewNode(kind="action", parent=root.id, text="same"))[0] for _ in range(6)]
    other = tree.append(NewNode(kind="observation", parent=root.id))[0]
    assert [n.key for n in first + more] == [f"#{i}" for i in range(9)]
    assert other.key == "#0"


def test_an_ordinal_never_takes_a_key_that_was_given(tree):
    nodes = tree.append(
        [NewNode(kind="task", key="#0"), NewNode(kind="task"), NewNode(kind="task", key="#3")]
    )
    assert [n.key for n in nodes] == ["#0", "#1", "#3"]
    keys = [n.key for n in tree.append([NewNode(kind="task")] * 9)]
    assert len({*keys, "#0", "#1", "#3"}) == 12


def test_ordinals_under_a_parent_that_is_appended_again(tree):
    root = NewNode(kind="task", key="r")
    tree.append([root, NewNode(kind="action", parent=node_id(None, None, "task", "r"))])
    again = tree.append([root, NewNode(kind="action", parent=node_id(None, None, "task", "r"))])
    assert again[1].key == "#1"


def test_keep_is_normalised(tree):
    root = tree.append(step("task", "abc"))[0]
    whole = tree.append(NewNode(kind="action", parent=root.id, keep=3, key="k"))[0]
    assert whole.keep is None
    assert whole.id == node_id(root.id, None, "action", "k")
    assert tree.append(NewNode(kind="action", parent=root.id, keep=0, key="k"))[0].keep == 0


@pytest.mark.parametrize("keep", [-1, 4, True, 1.5])
def test_keep_beyond_the_parent(tree, keep):
    root = tree.append(step("task", "abc"))[0]
    with pytest.raises(BadPoint):
        tree.append(NewNode(kind="action", parent=root.id, keep=keep))
    assert len(tree) == 1


def test_keep_needs_tokens_and_a_parent(tree):
    root = tree.append(NewNode(kind="task", text="abc"))[0]
    with pytest.raises(BadPoint, match="no token ids"):
        tree.append(NewNode(kind="action", parent=root.id, keep=0))
    with pytest.raises(BadPoint, match="without a parent"):
        tree.append(NewNode(kind="action", keep=0))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"logprobs": np.zeros(2, np.float32)}, "shape"),
        ({"entropy": np.zeros((3, 1), np.float32)}, "shape"),
        ({"logprobs": np.array([0, np.nan, 0], np.float32)}, "not a number at token 1"),
        ({"tokens": None}, "offsets without tokens"),
        ({"tokens": None, "offsets": None}, "no tokens"),
        ({"tokens": np.array([1, -2, 3], np.int32)}, "negative"),
        ({"tokens": np.array([1.0, 2.0, 3.0])}, "whole numbers"),
        ({"tokens": np.array([1, 2, 2**31])}, "32 bits"),
        ({"tokens": np.array([1, -(2**32) + 5, -(2**33) + 7])}, f"{7 - 2**33}, which does not fit 32 bits"),
        ({"offsets": np.array([1, 2, 3 - 2**32])}, "32 bits"),
        ({"tokens": [[1], [2, 3]]}, "must be numbers"),
        ({"logprobs": ["low", "high", "none"]}, "must be numbers"),
        ({"tokens": np.ones((3, 1), np.int32)}, "one-dimensional"),
        ({"offsets": np.array([1, 2], np.int32)}, "2 offsets for 3 tokens"),
        ({"offsets": np.array([2, 1, 3], np.int32)}, "never fall"),
        ({"offsets": np.array([1, 2, 4], np.int32)}, "end at character 4"),
        ({"kind": "thought"}, "kind"),
        ({"origin": "dreamt"}, "origin"),
        ({"finish": "bored"}, "finish"),
        ({"text": "\ud800bc"}, "Unicode"),
        ({"text": 3}, "not a string"),
        ({"extra": {"x": float("nan")}}, "JSON"),
        ({"settings": {"x": object()}}, "JSON"),
        ({"snapshot": "text"}, "bytes"),
        ({"message": {"role": "user", "content": {"a": 1}}}, "its content is a dict"),
        ({"message": {"role": "user", "tool_calls": "abc"}}, "its tool calls are no list of objects"),
        ({"message": ["user", "a"]}, "message is a list"),
        ({"settings": {"forced": 3}}, "no list"),
        ({"cost": Cost(tokens_in="12")}, "cost has 'tokens_in', a str"),
        ({"extra": ["task"]}, "extra is a list"),
        ({"extra": {"task": 3}}, "extra has 'task', a int"),
        ({"extra": {"tools": "abc"}}, "extra has 'tools', a str"),
        ({"extra": {"messages": ["x"]}}, "extra has messages that are none"),
    ],
)
def test_contradictions_are_refused_and_nothing_is_written(tree, fields, message):
    with pytest.raises(BadInput, match=message):
        tree.append([NewNode(kind="task"), step("task", "abc", **fields)])
    assert len(tree) == 0


def test_an_unknown_parent_is_refused(tree):
    for parent in ("0" * 32, "xyz", "ab"):
        with pytest.raises(UnknownNode):
            tree.append([NewNode(kind="task"), NewNode(kind="action", parent=parent)])
    assert len(tree) == 0


def test_the_same_draw_is_stored_once(tree):
    root = tree.append(step("task", "abc"))[0]
    draw = step("action", "xy", root.id, key="d", cost=Cost(tokens_out=2, seconds=1.0))
    first = tree.append(draw)[0]
    again = tree.append([step("action", "xy", root.id, key="d", cost=Cost(tokens_out=2, seconds=9.0))] * 2)
    assert [seen(n) for n in again] == [seen(first)] * 2
    assert len(tree) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", "xz"),
        ("tokens", np.array([1, 2], np.int32)),
        ("logprobs", np.array([-0.1, -0.9], np.float32)),
        ("cost", Cost(tokens_out=3)),
        ("extra", {"a": 1}),
        ("state_key", "s"),
        ("snapshot", b"x"),
    ],
)
def test_another_result_for_a_draw_is_a_conflict(tree, field, value):
    root = tree.append(step("task", "abc"))[0]
    first = tree.append(step("action", "xy", root.id, key="d"))[0]
    with pytest.raises(DrawConflict, match=f"another {field}"):
        tree.append(step("action", "xy", root.id, key="d", **{field: value}))
    with pytest.raises(DrawConflict, match=f"another {field}"):
        tree.append(
            [step("action", "xy", root.id, key="e"), step("action", "xy", root.id, key="e", **{field: value})]
        )
    assert seen(tree.node(first.id)) == seen(first)
    assert len(tree) == 2


def test_rounding_of_log_probs_is_no_conflict(tree):
    first = tree.append(step("task", "ab", key="k"))[0]
    near = step("task", "ab", key="k", logprobs=first.logprobs + np.float32(1e-6))
    np.testing.assert_array_equal(tree.append(near)[0].logprobs, first.logprobs)


def test_commit_is_one_transaction(tree):
    root, actions, _ = small(tree)
    tree.begin_fork(ForkRecord("f", root.id, None, None, {}, {}, None, 0, 0))
    judge = tree.add_producer(Producer("judge"))
    leaf = node_id(root.id, None, "action", "new")
    drafts = [step("action", "abc", root.id, key="new")]
    with pytest.raises(BadInput):
        tree.commit(drafts, [DrawRecord("f", 0, leaf, "done")], [Score(leaf, "v", 1.0, "unknown")])
    assert not tree.has(leaf)
    assert tree.draws("f") == []
    nodes = tree.commit(drafts, [DrawRecord("f", 0, leaf, "done")], [Score(leaf, "v", 1.0, judge)])
    assert [n.id for n in nodes] == [leaf]
    assert [d.leaf for d in tree.draws("f")] == [leaf]
    assert tree.score_map("v", [leaf, actions[0].id]) == {leaf: 1.0}
    assert tree.commit([]) == []


def test_large_batches(tree):
    root = tree.append(NewNode(kind="task"))[0]
    nodes = tree.append([step("action", "ab", root.id, key=str(i)) for i in range(5000)])
    assert len({n.id for n in nodes}) == 5000
    assert [n.key for n in tree.nodes([n.id for n in reversed(nodes)])] == [
        str(i) for i in reversed(range(5000))
    ]
    assert tree.missing([nodes[0].id, "0" * 32]) == ["0" * 32]
    assert sum(1 for _ in tree.children(root)) == 5000


def test_threads_may_share_a_tree(tree):
    root = tree.append(NewNode(kind="task"))[0]

    def write(name: int) -> None:
        for i in range(20):
            tree.append(NewNode(kind="action", parent=root.id, key=f"{name}/{i}"))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tree) == 81


def test_a_closed_tree_says_so():
    tree = Tree.memory()
    tree.close()
    with pytest.raises(TreeError, match="closed"):
        len(tree)


def test_blobs_are_stored_once(tree):
    assert tree.put_blob(b"x") == tree.put_blob(b"x")
    assert tree.blob(tree.put_blob(b"")) == b""
    assert tree.stats().blobs == 2
    for name in ("zz", "00"):
        with pytest.raises(BadInput, match="no blob"):
            tree.blob(name)
