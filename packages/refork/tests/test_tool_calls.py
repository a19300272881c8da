from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.tool_calls import (
    ToolCall,
    Unparseable,
    calls_in,
    compact,
    openai_call,
    read_calls,
)

MAIL = ToolCall("send_email", {"to": "a@acme.com", "body": "hello"})
OBJECT = json.dumps({"name": MAIL.name, "arguments": MAIL.arguments})


def said(text):
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    "text",
    [
        OBJECT,
        f"I will do that.\n{OBJECT}\nDone.",
        f"<tool_call>\n{OBJECT}\n</tool_call>",
        f"```json\n{OBJECT}\n```",
        f"```tool_call\n[{OBJECT}]\n```",
        json.dumps({"tool": "send_email", "args": MAIL.arguments}),
        json.dumps({"tool_calls": openai_call(MAIL)["tool_calls"]}),
        json.dumps({"name": "functions.send_email", "arguments": MAIL.arguments}),
        "call send_email | to a@acme.com | body hello",
        "Sure.\ncall send_email | to a@acme.com | body hello",
        'send_email(to="a@acme.com", body="hello")',
        '```tool_code\nprint(default_api.send_email(to="a@acme.com", body="hello"))\n```',
    ],
)  # fmt: skip
def test_every_form_in_a_text_is_the_same_call(text):
    assert [(call.name, call.arguments) for call in calls_in(said(text))] == [(MAIL.name, MAIL.arguments)]


def test_openai_calls_and_their_ids():
    message = openai_call(MAIL, "call_7")
    assert calls_in(message) == [ToolCall(MAIL.name, MAIL.arguments, "call_7")]
    two = message | {"tool_calls": message["tool_calls"] * 2}
    assert len(calls_in(two)) == 2
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "go", "arguments": '{"to": 1}'}}
    assert calls_in(legacy) == [ToolCall("go", {"to": 1})]
    plain = {"role": "assistant", "content": "", "tool_calls": [{"name": "go", "args": {"to": 1}, "id": "x"}]}
    assert calls_in(plain) == [ToolCall("go", {"to": 1}, "x")]


def test_the_text_beside_made_calls_is_not_executed():
    message = openai_call(MAIL) | {"content": json.dumps({"name": "purchase", "arguments": {}})}
    assert [call.name for call in calls_in(message)] == ["send_email"]


def test_several_calls_in_a_text_are_all_found():
    assert len(calls_in(said(f"<tool_call>{OBJECT}</tool_call> and <tool_call>{OBJECT}</tool_call>"))) == 2
    assert len(calls_in(said(f"{OBJECT}\n{OBJECT}"))) == 2
    assert len(calls_in(said("call a | x 1\ncall b | y 2"))) == 2


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('f(a=1)\n{"name": "g", "arguments": {}}\ncall h | x 1\nf(a=2)', "fghf"),
        ('call h | x 1\n{"name": "g", "arguments": {}}\nf(a=1)', "hgf"),
        ('f(a={"name": "g", "arguments": {}})', "f"),
        ('call f | body {"name": "g", "arguments": {}}', "f"),
        (json.dumps({"name": "f", "arguments": {"a": "x\ncall g | b 1\ng(a=1)"}}).replace("\\n", "\n"), "f"),
        ('[g]\nf(a=[{"name": "g", "arguments": {}}])', "f"),
    ],
)
def test_calls_come_in_their_order_and_arguments_are_no_calls(text, names):
    calls, broken = read_calls(said(text))
    assert ("".join(call.name for call in calls), broken) == (names, [])


@pytest.mark.parametrize("value", ["{1, 2}", "b'x'", "1 + 2j", "{(1, 2): 3}"])
def test_an_argument_that_is_no_json_is_no_call(value):
    calls, broken = read_calls(said(f"f(x={value})"))
    assert calls == []
    assert "not JSON" in broken[0]


@pytest.mark.parametrize(
    "text",
    [
        "I cannot do that.",
        "No: {this} is [not] a call.",
        "go(x={[1]: 2})",
        json.dumps({"status": "refused", "reason": "a rule"}),
        "Please\ncall support",
        "call me when you can",
        "1. first {a}\n2. second",
        "refuse(1)",
        "refuse(x=)",
        "refuse(x=y)",
    ],
)
def test_speaking_is_no_call(text):
    assert calls_in(said(text)) == []


@pytest.mark.parametrize(
    "message",
    [
        said(""),
        said(None),
        said("   \n"),
        said("<tool_call>{"),
        said("<tool_call>not json</tool_call>"),
        said("<tool_call>{}</tool_call>"),
        said('{"tool_calls": [3]}'),
        said('{"function": {"name": "send_email"}}'),
        said('{"name": "x", "arguments": ' + "[" * 100_000),
        said(f"<tool_call>{OBJECT}"),
        said(OBJECT[:-2]),
        said('{"name": "send_email"'),
        said('{"name": "send_email", "arguments": "not json"}'),
        said('{"name": "send_email", "arguments": [1]}'),
        said("call send_email"),
        said("call send_email | to a | "),
        said("[" * 100_000),
        {"role": "assistant", "tool_calls": [{"function": {"name": "send_email", "arguments": '{"to":'}}]},
        {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]},
        {"role": "assistant", "tool_calls": "send"},
        {"role": "assistant", "tool_calls": [7]},
    ],
)
def test_a_broken_or_empty_message_is_unparseable(message):
    assert isinstance(calls_in(message), Unparseable)


def test_a_broken_call_hides_no_other():
    good = openai_call(MAIL, "a")["tool_calls"]
    mixed = {"role": "assistant", "tool_calls": [{"function": {"name": "x", "arguments": "{"}}, *good]}
    assert calls_in(mixed) == [ToolCall(MAIL.name, MAIL.arguments, "a")]
    calls, broken = read_calls(mixed)
    assert (len(calls), len(broken)) == (1, 1)
    assert read_calls(said(f"<tool_call>{OBJECT}</tool_call><tool_call>{{"))[1] == [
        "a <tool_call> tag is not closed"
    ]
    text = f"```json\n{OBJECT}\n```\nand then\ncall purchase | amount 500"
    assert [call.name for call in calls_in(said(text))] == ["send_email", "purchase"]


def test_content_in_parts_is_read():
    assert calls_in({"role": "assistant", "content": [{"type": "text", "text": OBJECT}]}) == [MAIL]


def test_numbers_that_a_float_would_round_are_kept_as_written():
    found = calls_in(
        said('{"name": "buy", "arguments": {"a": 100.01, "b": 100.00000000000000000001, "c": 1e400}}')
    )
    assert found[0].arguments == {"a": 100.01, "b": "100.00000000000000000001", "c": "1e400"}
    assert json.loads(json.dumps(found[0].arguments)) == found[0].arguments
    (python,) = calls_in(
        said("buy(a=100.01, b=-0.12345678901234567890, c=1e400, d=[-1.5, (2, 1_0.5)], e={1: 2})")
    )
    assert python.arguments == {
        "a": 100.01,
        "b": "-0.12345678901234567890",
        "c": "1e400",
        "d": [-1.5, [2, 10.5]],
        "e": {"1": 2},
    }


values = st.text(st.characters(whitelist_categories=("L", "N"), whitelist_characters="@.-_/"), min_size=1)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), values, min_size=1, max_size=5))
def test_compact_and_openai_forms_round_trip(arguments):
    call = ToolCall("send_email", arguments)
    assert calls_in(said(compact(call))) == [call]
    assert calls_in(openai_call(call, "c"))[0].arguments == arguments


keys = st.sampled_from(["name", "arguments", "tool_calls", "function", "x"])
json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(st.text(max_size=200) | json_values.map(json.dumps), json_values)
def test_no_message_makes_it_raise(text, made):
    for message in (said(text), {"role": "assistant", "content": text, "tool_calls": made}):
        found = calls_in(message)
        assert isinstance(found, list | Unparseable)
