"""Traces and logs that a policy tokenises: the token ids are those of the same conversation as chat."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest

from refork.formats import import_file, reader_for
from refork.policies.scripted import ScriptedPolicy
from refork.tree import Tree
from support.foreign_logs import unpacked
from support.fuzz_seeds import CALL, attribute

CHAT = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "and now?"},
    {"role": "assistant", "content": "yes?"},
]
POLICY = ScriptedPolicy.from_replies(["hello", "yes?"])


def tokens_of(file, policy=POLICY):
    """The token walks to the leaves of a file that is imported with a policy."""
    with Tree.memory() as tree:
        found = import_file(tree, file, reader_for(file, policy=policy))
        assert not found.count("skipped")
        assert list(tree.verify()) == []
        assert {root.extra["tokenizer"] for root in tree.tasks()} == {POLICY.card.tokenizer}
        return [trajectory.tokens.tolist() for trajectory in tree.paths(tree.leaves())], found


@pytest.fixture
def expected(tmp_path):
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": CHAT}))
    (trajectory,), _ = tokens_of(file)
    assert len(trajectory) > 10
    return trajectory


def part(message):
    return {"role": message["role"], "parts": [{"type": "text", "content": message["content"]}]}


def span(number, shown, said, **more):
    told = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps([part(said)])}
    told |= {"gen_ai.input.messages": json.dumps([part(one) for one in shown])} if shown else {}
    return {
        "traceId": "1" * 32, "spanId": f"{number:016d}", "name": "chat", "startTimeUnixNano": str(number),
        "endTimeUnixNano": str(number + 1), "attributes": [attribute(k, v) for k, v in told.items()], **more,
    }  # fmt: skip


def traced(file, spans):
    file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    return file


def test_spans(tmp_path, expected):
    spans = [span(1, CHAT[:1], CHAT[1]), span(2, CHAT[:3], CHAT[3])]
    found, loaded = tokens_of(traced(tmp_path / "spans.json", spans))
    assert found == [expected]
    assert "log-probs: spans have none" in [note.what for note in loaded.remarks]


def test_a_context_that_begins_anew_is_tokenised_by_itself(tmp_path, expected):
    other = {"role": "user", "content": "else"}
    spans = [span(1, [other], CHAT[1]), span(2, CHAT[:3], CHAT[3])]
    assert tokens_of(traced(tmp_path / "spans.json", spans))[0] == [expected]


def test_what_was_not_captured_has_no_token_ids(tmp_path):
    file = traced(tmp_path / "spans.json", [span(1, CHAT[:1], CHAT[1]), span(2, [], CHAT[3])])
    with Tree.memory() as tree:
        import_file(tree, file, reader_for(file, policy=POLICY))
        (trajectory,) = tree.paths(tree.leaves())
    assert [step.node.tokens is None for step in trajectory] == [False, False, True]


def test_runs(tmp_path, expected):
    file = tmp_path / "runs.jsonl"
    runs = [
        {
            "id": str(n), "trace_id": "t", "run_type": "llm", "start_time": f"2026-01-01T00:00:0{n}",
            "inputs": {"messages": shown}, "outputs": {"choices": [{"message": said}]},
        }
        for n, shown, said in ((1, CHAT[:1], CHAT[1]), (2, CHAT[:3], CHAT[3]))
    ]  # fmt: skip
    file.write_text("\n".join(json.dumps(run) for run in runs))
    assert tokens_of(file)[0] == [expected]
    # One line is no array: it is the list that LangSmith's client gives.
    file.write_text(json.dumps({"runs": runs}))
    assert tokens_of(file)[0] == [expected]


def test_a_store_of_messages(tmp_path, expected):
    """A fork of two answers to one question: both trajectories have the ids of their own chat."""
    file = unpacked("llm-0.36.db", tmp_path)
    db = sqlite3.connect(file)
    for table in ("turns", "threads", "parts", "messages", "responses"):
        db.execute(f"DELETE FROM {table}")
    above = None
    for number, message in enumerate([*CHAT, {"role": "assistant", "content": "no!"}]):
        above = "m2" if number == 4 else above
        db.execute("INSERT INTO messages VALUES (?, ?, ?, NULL)", (f"m{number}", above, message["role"]))
        sql = "INSERT INTO parts (message_hash, position, type, text) VALUES (?, 0, 'text', ?)"
        db.execute(sql, (f"m{number}", message["content"]))
        above = f"m{number}"
    db.commit()
    db.close()
    trajectories, _ = tokens_of(file)
    said = {tuple(POLICY.encode(text).tolist()) for text in ("yes?", "no!")}
    assert expected in trajectories
    assert {
        tuple(trajectory[len(expected) - len(POLICY.encode("yes?")) :]) for trajectory in trajectories
    } == said


@pytest.mark.parametrize("form", ["spans", "runs", "llm"])
def test_calls_of_tools_have_ids_that_say_who_wrote_them(form, tmp_path):
    file = tmp_path / "log.json"
    if form == "spans":
        asks = {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c", "name": "look", "arguments": {}}],
        }
        made = span(1, CHAT[:1], CHAT[1])
        made["attributes"][1] = attribute("gen_ai.output.messages", json.dumps([asks]))
        traced(file, [made])
    elif form == "runs":
        message = {"role": "assistant", "content": "", "tool_calls": [CALL]}
        run = {"id": "1", "trace_id": "t", "run_type": "llm", "inputs": {"messages": CHAT[:1]}}
        file.write_text(json.dumps(run | {"outputs": {"choices": [{"message": message}]}}))
    else:
        file = unpacked("llm-0.36.db", tmp_path)
    with Tree.memory() as tree:
        found = import_file(tree, file, reader_for(file, policy=POLICY))
        assert found.count("skipped") == 0
        assert list(tree.verify()) == []
        made = [node for node in tree.walk() if (node.message or {}).get("tool_calls")]
        assert made
        for node in made:
            assert node.extra["token_ids"]["calls"] == "generic"
            np.testing.assert_array_equal(node.tokens, POLICY.encode(node.text))
            assert "<tool_call>" in node.text
