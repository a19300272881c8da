from __future__ import annotations

import json

import pytest

from memory.memory_parts import PEOPLE, asks, pay_run, write_runs
from refork.errors import BadInput
from refork_methods.memory.induce import skeleton_of
from refork_methods.memory.sources import function_name, read_runs, refuses, run_of_messages


def called(number, name, arguments, result):
    call = {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps(result)},
    ]


def conversation():
    return [
        {"role": "system", "content": "The password is p-1."},
        {"role": "user", "content": asks()},
        *called(1, "pay__login", {"password": "p-1"}, {"token": "T"}),
        *called(2, "pay__list_people", {"token": "T", "page": 0}, {"items": PEOPLE, "page": 0}),
        *called(3, "pay__send", {"user_id": "x"}, {"error": "no such user"}),
        *called(4, "pay__send", {"token": "T", "user_id": 7, "amount": 20, "note": "rent"}, {"id": 1}),
        {"role": "assistant", "content": "Done."},
    ]


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_openai_messages(tmp_path):
    file = lines(
        tmp_path / "runs.jsonl",
        {"messages": conversation(), "reward": 1},
        {"messages": conversation(), "task": "x"},
    )
    first, second = read_runs(file)
    assert (first.task, first.success, first.query) == ("runs:1", True, asks())
    assert (second.task, second.success) == ("x", None)
    assert [step.function for step in first.steps] == [
        "pay.login",
        "pay.list_people",
        "pay.send",
        "pay.send",
        "",
    ]
    assert [step.failed for step in first.steps] == [False, False, True, False, False]
    assert [step.op for step in skeleton_of(first)] == ["call", "pages", "find", "call"]


def test_calls_written_as_text():
    messages = [
        {"role": "user", "content": asks()},
        {"role": "assistant", "content": "# first\napis.pay.login(password='p-1')"},
        {"role": "user", "content": '{"token": "T"}'},
        {"role": "assistant", "content": "tools.helper(x=1)"},
        {"role": "user", "content": "Execution failed: no"},
        {"role": "assistant", "content": "done(answer=7)"},
    ]
    found = run_of_messages(messages, "t")
    assert [step.function for step in found.steps] == ["pay.login", "tools.helper", ""]
    assert found.steps[0].result == {"token": "T"}
    assert found.steps[1].failed
    assert found.steps[2].arguments == {"answer": 7}


def test_a_given_query_leaves_the_rest_of_the_prompt_as_context():
    messages = [
        {"role": "user", "content": f"Rules.\nTask: {asks()}"},
        {"role": "assistant", "content": "ok"},
    ]
    found = run_of_messages(messages, "t", query=asks())
    assert "Rules." in found.context
    assert asks() not in found.context


def test_a_trajectory_without_a_query_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no query"):
        read_runs(lines(tmp_path / "a.jsonl", {"messages": [{"role": "assistant", "content": "hi"}]}))


def test_duplicate_task_ids_are_refused(tmp_path):
    row = {"messages": conversation(), "task": "x"}
    with pytest.raises(BadInput, match="two trajectories have the task id 'x'"):
        read_runs(lines(tmp_path / "a.jsonl", row, row))


@pytest.mark.parametrize("row", [{"text": "x"}, {"messages": "x"}, {"messages": [1]}])
def test_a_line_of_no_kind_is_named(tmp_path, row):
    with pytest.raises(BadInput, match=r"a\.jsonl:1"):
        read_runs(lines(tmp_path / "a.jsonl", row))


def test_no_file_and_no_lines(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        read_runs(tmp_path / "none")
    with pytest.raises(BadInput, match="no trajectory"):
        read_runs(lines(tmp_path / "a.jsonl"))


def test_our_own_lines_go_there_and_back(tmp_path):
    runs = [pay_run("1"), pay_run("2", success=None)]
    write_runs(tmp_path / "a.jsonl", runs)
    assert read_runs(tmp_path / "a.jsonl") == runs


def span(trace, start, **attributes):
    return {"trace_id": trace, "start_time": start, "attributes": attributes}


def test_spans(tmp_path):
    prompt = json.dumps([{"role": "user", "parts": [{"type": "text", "content": asks()}]}])
    chat = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": prompt, "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 2}  # fmt: skip
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay__login",
            "gen_ai.tool.call.arguments": '{"password": "p"}',
            "gen_ai.tool.call.result": '{"token": "T"}'}  # fmt: skip
    other = {"traceId": "b", "startTimeUnixNano": "1", "attributes": [
        {"key": "gen_ai.input.messages", "value": {"stringValue": prompt}}]}  # fmt: skip
    file = lines(tmp_path / "a.jsonl", span("a", "2", **tool), span("a", "1", **chat), other)
    first, second = read_runs(file)
    assert (first.task, first.query, first.cost.tokens_in) == ("a", asks(), 7)
    assert [(s.function, s.arguments, s.result) for s in first.steps] == [
        ("pay.login", {"password": "p"}, {"token": "T"})
    ]
    assert second.task == "b"
    with pytest.raises(BadInput, match="capture"):
        read_runs(lines(tmp_path / "b.jsonl", span("a", "1", **tool)))


def test_a_tree(tmp_path):
    from refork.formats.openai_chat import OpenAIChat
    from refork.tree.tree import Tree

    source = lines(tmp_path / "a.jsonl", {"messages": conversation()})
    with Tree.open(tmp_path / "tree.db") as tree:
        tree.load(OpenAIChat().read(source))
    (found,) = read_runs(tmp_path / "tree.db")
    assert found.query == asks()
    assert [step.function for step in found.steps if step.function] == [
        "pay.login",
        "pay.list_people",
        "pay.send",
        "pay.send",
    ]
    assert found.success is None


def test_names_and_refusals():
    assert [function_name(one) for one in ("a.b", "a__b", "b")] == ["a.b", "a.b", "env.b"]
    answers = ({"status_code": 404}, {"status_code": 200}, "Error: x", "fine", [1])
    assert [refuses(one) for one in answers] == [
        True, False, True, False, False,
    ]  # fmt: skip
