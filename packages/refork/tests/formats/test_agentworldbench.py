"""AgentWorldBench rows as its repository documents them."""

from __future__ import annotations

import json

import pytest

from refork.errors import BadInput
from refork.formats import reader_for
from refork.tree import Tree

ROW = {
    "task": "mcp",
    "id": 145,
    "prompt": ["### Turn 1\n**Action:**\nget 1", "### Turn 2\n**Action:**\nget 2", "### Turn 3\nget 3"],
    "response": ["**Environment Observation:**\n{one}", "**Environment Observation:**\n  two\n", "three"],
    "current_prompt": "### Turn 2\n**Action:**\nget 2",
    "system_str": "# Role and Objective\n\nYou are a **Tool World Model**",
    "turn_idx": 2,
    "total_turns": 3,
}


def load(tmp_path, *rows):
    file = tmp_path / "mcp_test.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    tree = Tree.memory()
    reader = reader_for(file)
    assert reader.name == "agentworldbench"
    tree.load(reader.read(file))
    return tree


def test_a_row_ends_in_the_turn_it_evaluates(tmp_path):
    tree = load(
        tmp_path, ROW, {**ROW, "turn_idx": 1, "current_prompt": "", "prompt": "get 1", "response": "one"}
    )
    (root,) = tree.tasks()
    assert root.extra["domain"] == "tools"
    assert root.extra["brief"] == {"task_description": ROW["system_str"]}
    long = max(tree.paths(tree.leaves()), key=len)
    assert [step.node.kind for step in long] == ["task", "action", "observation", "action", "observation"]
    assert [step.node.text for step in long][2::2] == ["{one}", "  two\n"]
    assert [step.node.extra.get("target") for step in long][2::2] == [False, None]
    assert long.leaf.extra["line"] == {"task": "mcp", "id": 145, "turn_idx": 2, "total_turns": 3}
    assert list(tree.verify()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"turn_idx": 4, "current_prompt": ""}, "turn 4 is evaluated"),
        ({"turn_idx": 0}, "turns count from 1"),
        ({"task": "chess"}, "no domain"),
        ({"response": [1]}, "list of texts"),
    ],
)
def test_bad_rows_are_named(tmp_path, change, said):
    with pytest.raises(BadInput, match=said) as caught:
        load(tmp_path, ROW, {**ROW, **change})
    assert "mcp_test.jsonl:2" in str(caught.value)
