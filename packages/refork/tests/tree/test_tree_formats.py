from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from refork.errors import BadInput, DrawConflict, TreeVersion, UnknownNode
from refork.formats import reader_for
from refork.formats.native import Native
from refork.formats.openai_chat import OpenAIChat
from refork.policies.scripted import ScriptedPolicy
from refork.tree import DrawRecord, ForkRecord, NewNode, Producer, Score, Tree
from tree.tree_builders import seen, small, step, trees

relaxed = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def exported(tree: Tree) -> str:
    out = io.StringIO()
    Native().write(tree.records(), out)
    return out.getvalue()


def imported(text: str, folder, into: Tree | None = None) -> Tree:
    file = folder / "export.jsonl"
    file.write_text(text, encoding="utf-8")
    tree = into or Tree.memory()
    tree.load(reader_for(file).read(file))
    return tree


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("formats")


@relaxed
@given(trees())
def test_import_undoes_export(folder, tree):
    text = exported(tree)
    copy = imported(text, folder)
    assert exported(copy) == text
    assert [seen(n) for n in copy.walk()] == [seen(n) for n in tree.walk()]
    assert list(copy.forks()) == list(tree.forks())
    assert copy.producers() == tree.producers()
    assert copy.retirements() == tree.retirements()
    assert copy.stats().scores == tree.stats().scores
    assert list(copy.verify()) == []


@relaxed
@given(trees())
def test_merging_a_tree_twice_changes_nothing_more(tree):
    copy = Tree.memory()
    first = copy.merge(tree)
    again = copy.merge(tree)
    assert first.nodes == len(tree)
    assert first.renumbered == 0
    assert (again.nodes, again.scores, again.forks, again.draws) == (0, 0, 0, 0)
    assert exported(copy) == exported(tree)


@relaxed
@given(trees(size=6), trees(size=6))
def test_merging_two_trees_keeps_the_walks_of_both(one, two):
    try:
        both = Tree.memory()
        both.merge(one)
        loaded = both.merge(two)
    except DrawConflict:
        return  # forks of one name that differ: refused, as it should be
    assert len(both) == len(one) + loaded.nodes
    assert list(both.verify()) == []

    def said(tree):
        return [
            json.dumps([(s.node.kind, s.node.text, s.keep, s.node.extra) for s in trajectory], sort_keys=True)
            for trajectory in tree.paths(tree.leaves())
        ]

    assert set(said(one)) | set(said(two)) >= set(said(both))
    everywhere = {json.dumps([(s.node.kind, s.node.text, s.keep, s.node.extra) for s in w], sort_keys=True)
                  for w in both.paths(both.walk())}  # fmt: skip
    assert everywhere >= set(said(one)) | set(said(two))


def test_equal_nodes_of_two_trees_are_stored_once(tmp_path):
    with Tree.open(tmp_path / "a.db") as a, Tree.open(tmp_path / "b.db") as b:
        for tree in (a, b):
            small(tree)
        loaded = a.merge(b)
        assert loaded.nodes == 0
        assert len(a) == 6
        b.append(step("action", "new", next(b.tasks()).id, key="d9"))
        assert a.merge(b).nodes == 1
        assert a.file != b.file


def test_ordinals_that_mean_other_events_are_renumbered_with_all_that_refers_to_them():
    def build(text: str) -> Tree:
        tree = Tree.memory()
        root = tree.append(NewNode(kind="task", text=text))[0]
        child = tree.append(step("action", "same", root.id, key="d"))[0]
        tree.append(step("action", "x", child.id, keep=2))
        judge = tree.add_producer(Producer("judge"))
        tree.add_scores([Score(child.id, "v", float(len(text)), judge)])
        tree.begin_fork(ForkRecord(f"f-{text}", child.id, 1, None, {}, {}, None, 0, 0))
        tree.finish_draws([DrawRecord(f"f-{text}", 0, child.id, "done")])
        return tree

    both = build("one")
    for _ in range(2):
        loaded = both.merge(build("three"))
        assert loaded.renumbered == 1
    assert len(both) == 6
    one, three = both.tasks()
    assert (one.text, three.text, three.key) == ("one", "three", "#1")
    child = next(both.children(three))
    assert both.score_map("v", [child]) == {child.id: 5.0}
    assert both.fork_record("f-three").node == child.id
    assert both.draws("f-three")[0].leaf == child.id
    assert list(both.verify()) == []


def test_equal_siblings_stay_as_many_as_they_were():
    one, two = Tree.memory(), Tree.memory()
    one.append([NewNode(kind="task", text=t) for t in "ba"])
    two.append([NewNode(kind="task", text=t) for t in "aa"])
    one.merge(two)
    assert sorted(n.text for n in one.tasks()) == ["a", "a", "b"]


def test_a_draw_that_differs_is_a_conflict_and_nothing_is_copied():
    one, two = Tree.memory(), Tree.memory()
    one.append(NewNode(kind="task", key="k", text="a"))
    two.append([NewNode(kind="task", key="first"), NewNode(kind="task", key="k", text="b")])
    with pytest.raises(DrawConflict, match="another text"):
        one.merge(two)
    assert len(one) == 1


def test_bad_exports(tmp_path):
    tree = Tree.memory()
    small(tree)
    lines = exported(tree).splitlines()

    def refused(text: str, error: type[Exception], match: str) -> None:
        with Tree.open(tmp_path / "into.db") as into:
            with pytest.raises(error, match=match):
                imported(text, tmp_path, into)
            assert len(into) == 0

    refused("\n".join(lines)[:-20], BadInput, r"jsonl:7")
    refused("\n".join([lines[0], '{"record": "cloud"}']), BadInput, r"jsonl:2")
    refused("\n".join([lines[0], *lines[2:]]), UnknownNode, "parent")
    refused('{"refork": "tree", "version": 99}', TreeVersion, "version 99")
    refused("\n".join([lines[0], lines[1].replace('"#0"', '"#7"')]), BadInput, "digest of its place")
    missing = json.loads(lines[1]) | {"snapshot": "00" * 32}
    refused("\n".join([lines[0], json.dumps(missing)]), BadInput, "no blob")
    refused("hello", BadInput, "no format")
    with pytest.raises(BadInput, match="not an export"):
        list(Native().read(_file(tmp_path, "{}")))
    with pytest.raises(BadInput, match="cannot be read"):
        reader_for(tmp_path / "nothing")
    with pytest.raises(BadInput, match="no format 'csv'"):
        reader_for(tmp_path, "csv")
    with pytest.raises(BadInput, match="no place in an export"):
        Native().write([NewNode(kind="task")], io.StringIO())
    with pytest.raises(BadInput, match="not a record"):
        tree.load(["text"])


def _file(folder, text):
    file = folder / "lines.jsonl"
    file.write_text(text)
    return file


CHATS = [
    {
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "again"},
            {"role": "assistant", "content": "hello"},
        ],
        "metadata": {"n": 1},
    },
    {
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]},
            {"role": "assistant", "content": "yes?"},
        ]
    },
]


def test_openai_chat(tmp_path):
    file = _file(tmp_path, "\n".join([json.dumps(chat) for chat in CHATS] + ["", json.dumps(CHATS[1])]))
    tree = Tree.memory()
    assert reader_for(file).name == "openai-chat"
    first = tree.load(reader_for(file).read(file))
    assert first.nodes == len(tree) == 6
    (root,) = tree.tasks()
    assert root.text == "be brief\nhi"
    assert root.extra["messages"] == CHATS[0]["messages"][:2]
    assert [n.text for n in tree.children(root)] == ["hello", "yes?", "yes?"]
    trajectories = tree.paths(tree.leaves())
    assert sorted(len(w) for w in trajectories) == [2, 2, 4]
    long = max(trajectories, key=len)
    assert [s.node.kind for s in long] == ["task", "action", "observation", "action"]
    assert long.leaf.extra == {"line": {"metadata": {"n": 1}}}
    assert long.leaf.message == CHATS[0]["messages"][-1]
    assert long.leaf.tokens is None
    again = tree.load(reader_for(file).read(file))
    assert again.nodes == 0
    assert list(tree.verify()) == []


def test_openai_chat_with_tools(tmp_path):
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    chat = {
        "messages": [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "dark", "tool_call_id": "1"},
            {"role": "tool", "content": "cold", "tool_call_id": "2"},
        ],
        "tools": [{"type": "function"}],
    }
    file = _file(tmp_path, json.dumps(chat))
    tree = Tree.memory()
    tree.load(OpenAIChat().read(file))
    root, action, seen_ = tree.walk()
    assert (root.text, root.message, root.extra) == ("", None, {"tools": chat["tools"]})
    assert action.message["tool_calls"] == [call]
    assert "look" in action.text
    assert seen_.text == "dark\ncold"
    policy = ScriptedPolicy.from_replies(["ab"])
    tree.load(OpenAIChat(policy).read(file))
    turn = next(node for node in tree.walk() if node.kind == "action" and node.tokens is not None)
    np.testing.assert_array_equal(turn.tokens, policy.encode(turn.text))
    assert turn.extra["token_ids"]["calls"] == "generic"


def test_openai_chat_tokenised(tmp_path):
    file = _file(tmp_path, "\n".join(json.dumps(chat) for chat in CHATS))
    policy = ScriptedPolicy.from_replies(["hello", "yes?"])
    tree = Tree.memory()
    tree.load(OpenAIChat(policy).read(file))
    trajectory = max(tree.paths(tree.leaves()), key=len)
    assert len(trajectory.tokens) > 0
    assert all(step_.node.tokens is not None for step_ in trajectory)
    np.testing.assert_array_equal(trajectory.leaf.tokens, policy.encode("hello"))
    assert list(tree.verify({"replies": policy})) == []


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"messages": []}', '{"messages": [3]}', '{"messages": [{"content": 1}]}']
)
def test_bad_chat_lines_are_named(tmp_path, line):
    file = _file(tmp_path, json.dumps(CHATS[0]) + "\n" + line)
    tree = Tree.memory()
    with pytest.raises(BadInput, match=r"jsonl:2"):
        tree.load(OpenAIChat().read(file))
    assert len(tree) == 0


def test_what_one_tree_retired_takes_its_readers_of_the_other_with_it():
    source = Producer(name="judge", version="1", config={})
    with Tree.memory() as one, Tree.memory() as two:
        first = one.add_producer(source)
        one.retire(first, "wrong")
        two.add_producer(source)
        derived = two.add_producer(Producer(name="credit", version="1", config={}, reads=(first,)))
        with Tree.memory() as both:
            both.merge(two)
            assert {p.name for p in both.producers()} == {"judge", "credit"}
            both.merge(one)
            assert both.producers() == []
            assert {item.producer for item in both.retirements()} == {first, derived}
            assert list(both.verify()) == []
