"""Rollouts of verifiers: rows, columns, and v1 traces."""

from __future__ import annotations

import json

import pytest

from refork.errors import BadInput
from refork.formats import reader_for
from refork.tree import Tree

CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
COMPLETION = [
    {"role": "assistant", "content": "", "tool_calls": [json.dumps(CALL)], "reasoning_content": "hm"},
    {"role": "tool", "content": "dark", "tool_call_id": "c"},
    {"role": "assistant", "content": "it is dark"},
]
ROW = {
    "example_id": 3,
    "prompt": [{"role": "user", "content": "what is there?"}],
    "completion": COMPLETION,
    "task": "rooms",
    "answer": "dark",
    "info": {"x": 1},
    "reward": 0.5,
    "metrics": {"length": 2.0},
    "error": None,
}
TRACE = {
    "version": 1,
    "id": "t",
    "task": {"type": "Rooms", "data": {}},
    "tools": [{"name": "look", "description": "", "parameters": {}}],
    "nodes": [
        {"message": {"role": "user", "content": "what is there?"}},
        {
            "parent": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "name": "look", "arguments": "{}"}],
            },
        },
        {"parent": 1, "message": {"role": "tool", "tool_call_id": "c", "content": "dark"}},
        {"parent": 2, "message": {"role": "assistant", "content": "dark"}},
        {"parent": 2, "message": {"role": "assistant", "content": "night"}},
    ],
    "rewards": {"right": {"score": 1.0, "weight": 0.5}, "short": None},
    "metrics": {"turns": 2.0},
    "errors": [],
}


def load(tmp_path, text, name="verifiers"):
    file = tmp_path / "results.jsonl"
    file.write_text(text if isinstance(text, str) else json.dumps(text))
    reader = reader_for(file)
    assert reader.name == name
    tree = Tree.memory()
    tree.load(reader.read(file))
    return tree


def test_a_row_is_a_conversation_with_its_reward(tmp_path):
    tree = load(tmp_path, json.dumps(ROW) + "\n" + json.dumps({**ROW, "error": {"error": "Timeout"}}))
    first, second = tree.paths(tree.leaves())
    assert [step.node.kind for step in first] == ["task", "action", "observation", "action"]
    action = first.steps[1].node
    assert action.message["tool_calls"] == [CALL]
    assert action.message["reasoning_content"] == "hm"
    assert "hm" not in action.text
    assert {(s.name, s.value) for s in tree.scores() if s.node == first.leaf.id} == {
        ("reward", 0.5),
        ("length", 2.0),
    }
    assert first.leaf.extra["line"]["info"] == {"x": 1}
    assert (first.leaf.error, second.leaf.error) == (None, "Timeout")
    assert list(tree.verify()) == []


def test_older_json_by_column_is_read(tmp_path):
    columns = {"prompt": ["a", "b"], "completion": ["x", "y"], "reward": [0.0, 1.0]}
    tree = load(tmp_path, columns)
    assert [trajectory.leaf.text for trajectory in tree.paths(tree.leaves())] == ["x", "y"]
    assert sorted(score.value for score in tree.scores(name="reward")) == [0.0, 1.0]
    with pytest.raises(BadInput, match="differ in length"):
        load(tmp_path, {**columns, "reward": [1.0]})


def test_a_trace_is_read_branch_by_branch(tmp_path):
    tree = load(tmp_path, json.dumps(TRACE))
    trajectories = tree.paths(tree.leaves())
    assert [trajectory.leaf.text for trajectory in trajectories] == ["dark", "night"]
    assert trajectories[0].root.extra["tools"] == TRACE["tools"]
    found = {(score.name, score.value) for score in tree.scores()}
    assert found == {("right", 1.0), ("turns", 2.0), ("reward", 0.5)}


@pytest.mark.parametrize("score", [None, 0.25])
def test_a_reward_that_was_not_computed_leaves_the_sum_unknown(tmp_path, score):
    rewards = {"a": {"score": 1.0, "weight": 1.0}, "b": {"score": score, "weight": 2.0}, "c": None}
    tree = load(tmp_path, json.dumps({**TRACE, "rewards": rewards, "metrics": {}}))
    known = {("a", 1.0)} | ({("b", 0.25), ("reward", 1.5)} if score is not None else set())
    assert {(one.name, one.value) for one in tree.scores()} == known


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completion": [{"role": "robot"}]}, "completion message 1"),
        ({"completion": [{"role": "assistant", "tool_calls": ["{"]}]}, "is not JSON"),
        ({"completion": [*COMPLETION, {"role": "tool", "content": "", "tool_call_id": "c"}]}, "not open"),
        ({"completion": 3}, "neither text nor messages"),
    ],
)
def test_bad_rows_are_named(tmp_path, change, said):
    with pytest.raises(BadInput, match=said) as caught:
        load(tmp_path, json.dumps(ROW) + "\n" + json.dumps({**ROW, **change}))
    assert "results.jsonl:2" in str(caught.value)
