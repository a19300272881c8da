"""Where a log comes from is part of its tasks' identity: no mean is over two models, tools or evaluations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refork.cli.tree import app
from refork.formats import import_file, reader_for
from refork.tree import Tree

HERE = Path(__file__).parent / "fixtures"
ASK = [{"role": "user", "content": "What is there?"}]
SAID = {"role": "assistant", "content": "A lamp."}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def inspect(model, tools, run):
    """A log of one sample, as inspect_ai writes it, its score by the model's name."""
    body = json.loads(gzip.decompress((HERE / "inspect-server.json.gz").read_bytes()))
    body["eval"] |= {"model": model, "eval_id": run, "run_id": run}
    body["samples"] = body["samples"][:1]
    for event in body["samples"][0]["events"]:
        if event["event"] == "model":
            event["model"] = model
            if not tools:
                event["tools"], event["call"]["request"]["tools"] = [], []
    body["samples"][0]["scores"] = {"includes": {"value": "C" if model == "a" else "I"}}
    return json.dumps(body)


def chat(model, tools, run):
    return json.dumps({"messages": [*ASK, SAID], "model": model} | ({"tools": [TOOL]} if tools else {}))


def atif(model, tools, run):
    agent = {"name": "x", "version": "1", "model_name": model}
    agent |= {"tool_definitions": [TOOL]} if tools else {}
    steps = [
        {"step_id": 1, "source": "user", "message": "What is there?"},
        {"step_id": 2, "source": "agent", "message": "A lamp.", "model_name": model},
    ]
    return json.dumps({"schema_version": "ATIF-v1.4", "session_id": run, "agent": agent, "steps": steps})


def mini(model, tools, run):
    config = {"model": {"model_name": model}}
    info = {"config": config, "exit_status": "Submitted", "mini_version": "2.4"}
    return json.dumps({"info": info, "messages": [*ASK, SAID], "trajectory_format": "mini-swe-agent-1"})


def swe(model, tools, run):
    replay = json.dumps({"agent": {"model": {"name": model}}})
    step = {"action": "", "observation": "", "response": "A lamp.", "thought": "", "state": {}}
    return json.dumps({"trajectory": [step], "history": [*ASK, SAID], "info": {}, "replay_config": replay})


def runs(model, tools, run):
    params = {"model": model} | ({"tools": [TOOL]} if tools else {})
    return json.dumps(
        {
            "id": run, "trace_id": run, "run_type": "llm", "start_time": "2026-01-01T00:00:00",
            "dotted_order": run, "extra": {"invocation_params": params}, "inputs": {"messages": ASK},
            "outputs": {"choices": [{"message": SAID}]},
        }
    )  # fmt: skip


def spans(model, tools, run):
    def value(key, text):
        return {"key": key, "value": {"stringValue": text}}

    def part(message):
        return {"role": message["role"], "parts": [{"type": "text", "content": message["content"]}]}

    told = [
        value("gen_ai.operation.name", "chat"),
        value("gen_ai.request.model", model),
        value("gen_ai.input.messages", json.dumps([part(ASK[0])])),
        value("gen_ai.output.messages", json.dumps([part(SAID)])),
    ]
    told += [value("gen_ai.tool.definitions", json.dumps([TOOL]))] if tools else []
    span = {"traceId": run * 32, "spanId": run * 16, "name": "chat", "attributes": told}
    span |= {"startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})


FORMS = {
    "inspect.json": inspect, "chat.jsonl": chat, "atif.json": atif, "mini.traj.json": mini, "swe.traj": swe,
    "runs.jsonl": runs, "spans.json": spans,
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_equal_prompts_of_other_models_are_other_tasks(tmp_path, name):
    with Tree.memory() as tree:
        for model, run in (("a", "1"), ("b", "2")):
            file = tmp_path / f"{model}-{name}"
            file.write_text(FORMS[name](model, True, run))
            import_file(tree, file, reader_for(file))
            # The same file again adds nothing.
            assert import_file(tree, file, reader_for(file)).nodes == 0
        tasks = list(tree.tasks())
        assert len(tasks) == 2
        assert [task.extra["origin"]["model"] for task in tasks] == ["a", "b"]
        lines = tree.origins()
        assert [(line.tasks, line.leaves) for line in lines] == [(1, 1), (1, 1)]
        assert [line.origin["model"] for line in lines] == ["a", "b"]


@pytest.mark.parametrize("name", ["inspect.json", "chat.jsonl", "atif.json", "runs.jsonl", "spans.json"])
def test_equal_prompts_with_other_tools_are_other_tasks(tmp_path, name):
    with Tree.memory() as tree:
        for tools, run in ((True, "1"), (False, "2")):
            file = tmp_path / f"{tools}-{name}"
            file.write_text(FORMS[name]("a", tools, run))
            import_file(tree, file, reader_for(file))
        assert len(list(tree.tasks())) == 2


def test_means_are_by_origin(tmp_path):
    paths = []
    for model, run in (("a", "1"), ("b", "2")):
        paths.append(tmp_path / f"{model}.json")
        paths[-1].write_text(inspect(model, True, run))
        CliRunner().invoke(app, ["import", str(tmp_path / "t.db"), str(paths[-1])], catch_exceptions=False)
    out = CliRunner().invoke(app, ["stats", str(tmp_path / "t.db")], catch_exceptions=False).output
    lines = [line for line in out.splitlines() if line.startswith("origin")]
    assert len(lines) == 2
    assert "model a" in lines[0]
    assert lines[0].endswith("1 tasks, 1 leaves, mean 1.000 of 1")
    assert lines[1].endswith("1 tasks, 1 leaves, mean 0.000 of 1")
    found = CliRunner().invoke(app, ["stats", str(tmp_path / "t.db"), "--json"], catch_exceptions=False)
    assert [one["mean"] for one in json.loads(found.output)["origins"]] == [1.0, 0.0]


def test_logs_that_say_nothing_of_their_origin_share_their_prompt_as_before(tmp_path):
    file = tmp_path / "chat.jsonl"
    file.write_text("\n".join(json.dumps({"messages": [*ASK, SAID], "n": n}) for n in range(2)))
    with Tree.memory() as tree:
        import_file(tree, file, reader_for(file))
        (task,) = tree.tasks()
        assert "origin" not in task.extra


@pytest.mark.parametrize("form", ["row", "trace", "mini", "swe"])
def test_failed_rollouts_keep_their_own_errors_and_scores(tmp_path, form):
    """Two rollouts of one prompt in which nothing was said: each has an end of its own."""
    bodies = []
    for number in (1, 2):
        if form == "row":
            one = {"prompt": ASK, "completion": [], "reward": number / 2, "error": f"e{number}", "task": "t"}
        elif form == "trace":
            one = {
                "task": {},
                "nodes": [{"message": ASK[0], "parent": None}],
                "errors": [{"type": f"e{number}"}],
            }
            one["metrics"] = {"m": number / 2}
        elif form == "mini":
            one = json.loads(mini("a", False, ""))
            one["messages"], one["info"]["exit_status"] = ASK, f"e{number}"
        else:
            one = json.loads(swe("a", False, ""))
            one |= {"history": ASK, "trajectory": [], "info": {"exit_status": f"e{number}"}}
        bodies.append(one)
    name = {"row": "r.jsonl", "trace": "t.jsonl", "mini": "m.traj.json", "swe": "s.traj"}[form]
    with Tree.memory() as tree:
        for number, one in enumerate(bodies):
            file = tmp_path / f"{number}{name}"
            file.write_text(json.dumps(one))
            import_file(tree, file, reader_for(file))
        ends = sorted(tree.leaves(), key=lambda node: str(node.error))
        if form == "trace":
            # Its prompts are apart already where nothing was said.
            assert ends == sorted(tree.tasks(), key=lambda node: str(node.error))
        else:
            (task,) = tree.tasks()
            assert task.error is None
            assert [node.kind for node in ends] == ["verdict", "verdict"]
        assert [f"e{number}" in node.error for number, node in enumerate(ends, start=1)] == [True, True]
        if form in ("row", "trace"):
            values = [sorted(s.value for s in tree.scores(node)) for node in ends]
            assert values == [[0.5], [1.0]]
