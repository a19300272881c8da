"""ATIF documents of several versions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from refork.errors import BadInput
from refork.formats import import_file, reader_for
from refork.formats.atif import ATIF
from refork.formats.atif_export import ATIFWriter
from refork.formats.verifiers_export import VerifiersWriter
from refork.policies.base import Cost
from refork.tree import NewNode, Producer, Score, Tree
from refork.tree.records import Remark
from refork.worlds.trajectories import trajectory_of
from support.told import told

STEPS = [
    {"step_id": 1, "source": "system", "message": "be brief"},
    {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "what time is it?"}]},
    {
        "step_id": 3,
        "source": "agent",
        "model_name": "m-1",
        "message": "I look.",
        "reasoning_content": "the clock is a tool",
        "tool_calls": [
            {"tool_call_id": "a", "function_name": "now", "arguments": {"zone": "utc"}},
            {"tool_call_id": "b", "function_name": "day", "arguments": {}},
        ],
        "observation": {
            "results": [
                {"source_call_id": "b", "content": "monday"},
                {"source_call_id": "a", "content": "noon"},
            ]
        },
        "metrics": {"prompt_tokens": 20, "completion_tokens": 5, "cost_usd": 0.25},
        "timestamp": "2026-05-16T12:00:00Z",
    },
    {"step_id": 4, "source": "agent", "message": "ls", "observation": {"results": [{"content": "a.txt"}]}},
    {"step_id": 5, "source": "agent", "message": "done"},
]
DOCUMENT = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s",
    "agent": {"name": "t", "version": "2", "tool_definitions": [{"type": "function"}]},
    "steps": STEPS,
    "final_metrics": {"total_steps": 5},
}


def load(tmp_path, document, lines=False):
    file = tmp_path / "trajectory.json"
    file.write_text(
        json.dumps(document, indent=None if lines else 2) + ("\n" + json.dumps(document) if lines else "")
    )
    reader = reader_for(file)
    assert reader.name == "atif"
    tree = Tree.memory()
    tree.load(reader.read(file))
    return tree


def test_steps_become_actions_and_what_was_seen(tmp_path):
    tree = load(tmp_path, DOCUMENT)
    (trajectory,) = tree.paths(tree.leaves())
    nodes = [step.node for step in trajectory]
    assert [node.kind for node in nodes] == [
        "task",
        "action",
        "observation",
        "action",
        "observation",
        "action",
    ]
    assert nodes[0].text == "be brief\nwhat time is it?"
    assert nodes[0].extra["tools"] == [{"type": "function"}]
    assert "the clock" not in nodes[1].text
    assert nodes[1].message["reasoning_content"] == "the clock is a tool"
    assert json.loads(nodes[1].message["tool_calls"][0]["function"]["arguments"]) == {"zone": "utc"}
    assert (nodes[1].policy, nodes[1].cost.tokens_in, nodes[1].cost.money) == ("m-1", 20, 0.25)
    assert [m["tool_call_id"] for m in nodes[2].extra["messages"]] == ["b", "a"]
    assert nodes[4].text == "a.txt"
    assert nodes[5].extra["line"]["agent"] == {"name": "t", "version": "2"}
    assert list(tree.verify()) == []


def test_costs_that_are_no_numbers_are_not_known(tmp_path):
    metrics = {"prompt_tokens": "12", "completion_tokens": True, "cost_usd": "0.1"}
    steps = [step | {"metrics": metrics} if "metrics" in step else step for step in DOCUMENT["steps"]]
    tree = load(tmp_path, {**DOCUMENT, "steps": steps})
    assert {node.cost for node in tree.walk()} == {Cost()}
    assert list(tree.verify()) == []


def test_lines_and_subagents_are_read(tmp_path):
    inner = {
        "schema_version": "ATIF-v1.7",
        "trajectory_id": "x",
        "agent": {},
        "steps": STEPS[1:2] + STEPS[4:],
    }
    tree = load(tmp_path, {**DOCUMENT, "subagent_trajectories": [inner]}, lines=True)
    assert sorted(len(trajectory) for trajectory in tree.paths(tree.leaves())) == [2, 2, 6, 6]


def test_results_that_name_no_call_answer_those_of_their_step(tmp_path):
    def typed(*keys):
        return [
            {"tool_call_id": f"c{i}", "function_name": "keys", "arguments": {"keystrokes": key}}
            for i, key in enumerate(keys)
        ]

    steps = [
        {"source": "user", "message": "go"},
        {
            "source": "agent",
            "message": "",
            "tool_calls": typed("ls"),
            "observation": {"results": [{"content": "a"}]},
        },
        {
            "source": "agent",
            "message": "both",
            "tool_calls": typed("cd x", "ls"),
            "observation": {"results": [{"content": "# cd x\n# ls\nb"}]},
        },
    ]
    tree = load(tmp_path, {**DOCUMENT, "steps": steps})
    (trajectory,) = tree.paths(tree.leaves())
    turns = trajectory_of(trajectory).turns
    assert [turn.observation for turn in turns] == ["a", "# cd x\n# ls\nb"]
    assert [len(turn.action.split("\n")) for turn in turns] == [1, 2]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"source": "robot", "message": ""}, "source is 'robot'"),
        ({"source": "user", "message": "", "tool_calls": [{}]}, "user step has tool calls"),
        ({"source": "agent", "message": "", "tool_calls": [{"name": "x"}]}, "no function_name"),
        ({"source": "agent", "message": "", "observation": {}}, "no results"),
        ({"source": "agent", "message": 3}, "neither text nor parts"),
        (
            {
                "source": "agent",
                "message": "",
                "observation": {"results": [{"source_call_id": "z", "content": ""}]},
            },
            "call 'z'",
        ),
    ],
)
def test_bad_steps_are_named(tmp_path, step, said):
    with pytest.raises(BadInput, match=said) as caught:
        load(tmp_path, {**DOCUMENT, "steps": [*STEPS, step]})
    assert said.startswith("call") or "step 6" in str(caught.value)


@pytest.mark.parametrize("version", range(8))
def test_every_version_is_read(tmp_path, version):
    tree = load(tmp_path, {**DOCUMENT, "schema_version": f"ATIF-v1.{version}"})
    assert len(list(tree.leaves())) == 1


def test_copied_context_is_no_node_of_its_own(tmp_path):
    """A continuation begins with what was said before it: shown here, and no action, no cost, no policy."""
    copied = [{**step, "is_copied_context": True} for step in STEPS[:3]]
    new = {"source": "agent", "message": "on", "model_name": "m-2", "metrics": {"prompt_tokens": 9}}
    tree = load(tmp_path, {**DOCUMENT, "steps": [*copied, new]})
    (trajectory,) = tree.paths(tree.leaves())
    assert [step.node.kind for step in trajectory] == ["task", "action"]
    shown = trajectory.root.extra["messages"]
    assert [message["role"] for message in shown].count("assistant") == 1
    assert trajectory.root.policy is None
    assert (trajectory.leaf.text, trajectory.leaf.policy, trajectory.leaf.cost.tokens_in) == ("on", "m-2", 9)
    file = tmp_path / "trajectory.json"
    noted = [one for one in ATIF().read(file) if isinstance(one, Remark)]
    assert [(one.kind, one.count) for one in noted] == [("lost", 3)]


def test_uneven_arrays_are_kept_as_given_and_told(tmp_path):
    metrics = {"prompt_token_ids": [1, 2], "completion_token_ids": [3, 4, 5], "logprobs": [-0.5]}
    steps = [STEPS[0], {"source": "agent", "message": "x", "metrics": metrics}]
    tree = load(tmp_path, {**DOCUMENT, "steps": steps})
    leaf = next(iter(tree.leaves()))
    assert leaf.tokens is None
    assert leaf.extra["step"]["metrics"] == metrics
    noted = [one for one in ATIF().read(tmp_path / "trajectory.json") if isinstance(one, Remark)]
    assert ["log-probs that are not one for each token" in one.what for one in noted] == [True]


def test_a_bad_trajectory_is_passed_over(tmp_path):
    file = tmp_path / "runs.jsonl"
    bad = {**DOCUMENT, "steps": [{"source": "robot"}]}
    file.write_text("\n".join(json.dumps(one) for one in (DOCUMENT, bad, {**DOCUMENT, "notes": "again"})))
    tree = Tree.memory()
    found = import_file(tree, file, ATIF())
    assert len(list(tree.leaves())) == 2
    assert found.count("skipped") == 1
    with pytest.raises(BadInput, match="robot"):
        import_file(tree, file, ATIF(), strict=True)


def test_what_harbors_models_wrote_is_read_and_written_again(tmp_path):
    """A trajectory, its subagent, and a continuation that begins with copied context."""
    source = Path(__file__).parent / "fixtures/atif.jsonl"
    tree = load_file(source)
    trajectories = [[step.node.kind for step in trajectory] for trajectory in tree.paths(tree.leaves())]
    assert sorted(trajectories) == [
        ["task", "action"],
        ["task", "action"],
        ["task", "action", "observation", "action"],
    ]
    with (tmp_path / "out.jsonl").open("w") as out:
        ATIFWriter().write(tree.records(), out)
    assert told(load_file(tmp_path / "out.jsonl")) == told(tree)
    first, *_ = [json.loads(line) for line in source.read_text().splitlines()]
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    again = next(one for one in written if one.get("notes") == "first")
    assert again["steps"] == first["steps"]


def test_what_json_cannot_say_is_left_out_or_a_text(tmp_path):
    tree = Tree.memory()
    user = {"role": "user", "content": "q"}
    calls = [{"id": "c", "function": {"name": "f", "arguments": '{"x": NaN}'}}]
    (task,) = tree.append(NewNode(kind="task", text="q", message=user, tokens=np.array([1])))
    (said,) = tree.append(
        NewNode(
            kind="action",
            parent=task.id,
            message={"role": "assistant", "content": "ab", "tool_calls": calls},
            text="ab",
            tokens=np.array([2, 3]),
            logprobs=np.array([-np.inf, -1.0], np.float32),
        )
    )
    tree.add_scores([Score(said.id, "s", np.inf, tree.add_producer(Producer("p")))])
    for writer in (ATIFWriter(), VerifiersWriter()):
        with (tmp_path / "out.jsonl").open("w") as out:
            assert writer.write(tree.records(), out) == 1
        text = (tmp_path / "out.jsonl").read_text()
        body = json.loads(text, parse_constant=pytest.fail)
        assert '"Infinity"' in text
        if isinstance(writer, ATIFWriter):
            assert body["steps"][1]["metrics"] == {"completion_token_ids": [2, 3]}
            assert body["steps"][1]["tool_calls"][0]["arguments"] == {"x": None}


def load_file(path):
    tree = Tree.memory()
    tree.load(reader_for(path).read(path))
    return tree
