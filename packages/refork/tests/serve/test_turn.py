"""Answers that may call tools: what goes out while they come, and the message they make."""

import json

import pytest

from refork.serve.turn import TurnText

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("look", "send")]
THOUGHT = '<think>{"name": "send", "arguments": {}}</think>'
LOOK, SEND = (f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>' for name in ("look", "send"))


def told(text, tools=TOOLS, size=1):
    """What was sent in parts, and the whole message."""
    turn = TurnText(tools)
    parts = [turn.put(text[i : i + size]) for i in range(0, len(text), size)]
    return "".join(parts), turn.message()


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (f"Let me see.\n{LOOK}", "Let me see.\n", [("look", {})]),
        ('{"name": "look", "arguments": {"at": "x"}}', None, [("look", {"at": "x"})]),
        ('Sure:\n```json\n{"name": "send", "arguments": {}}\n```', "Sure:\n", [("send", {})]),
        ("\n\nlook(at=2)", None, [("look", {"at": 2})]),
        ("call look | at x", None, [("look", {"at": "x"})]),
        (f"{THOUGHT}\nlook(at=3)", f"{THOUGHT}\n", [("look", {"at": 3})]),
        (f"{LOOK}\n{SEND}", None, [("look", {}), ("send", {})]),
    ],
)
def test_calls_are_read_and_never_sent_as_text(text, content, calls, size):
    sent, message = told(text, size=size)
    made = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message["tool_calls"]]
    assert (message["content"], made) == (content, calls)
    assert (content or "").startswith(sent)
    assert len({c["id"] for c in message["tool_calls"]}) == len(calls)


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "a list: [1, 2]\n[3]",
        "<tool_call>broken",
        '{"name": "other", "arguments": {}}',
        "",
        "1 < 2",
    ],
)
def test_what_calls_no_offered_tool_is_text(text):
    sent, message = told(text)
    assert message == {"role": "assistant", "content": text}
    assert text.startswith(sent)


def test_without_tools_everything_goes_out_at_once():
    text = '{"name": "look", "arguments": {}}'
    assert told(text, tools=[]) == (text, {"role": "assistant", "content": text})


def test_prose_is_not_held_back_for_long():
    turn = TurnText(TOOLS)
    assert turn.put("This is a line that is") == "This is a line that is"
    assert turn.put(" going on <tool") == " going on "
    assert turn.put(" bar") == "<tool bar"
