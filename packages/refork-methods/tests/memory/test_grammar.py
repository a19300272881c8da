"""Turns are read, never evaluated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork_methods.memory.grammar import Act, call_text, done_text, plain, read_turn, tool_text

SHOW = Act("call", "mail.show", {"message_id": 3})


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("apis.mail.show(message_id=3)", SHOW),
        (" apis.mail.show( message_id = 3 , ) ", SHOW),
        ("# a thought\napis.mail.show(message_id=3)", SHOW),
        ("Let me look.\napis.mail.show(message_id=3)", SHOW),
        ("So:\n```python\napis.mail.show(\n  message_id=3)\n```\nDone?", SHOW),
        ('{"function": "mail.show", "arguments": {"message_id": 3}}', SHOW),
        ('{"function": "apis.mail.show"}', Act("call", "mail.show")),
        ('{"function": "done", "arguments": {"answer": 4}}', Act("done", answer=4)),
        ('{"function": "tools.x", "arguments": {}}', Act("tool", "x")),
        ("tools.pay_bill(person='Ann Lee')", Act("tool", "pay_bill", {"person": "Ann Lee"})),
        ("done()", Act("done")),
        ("done(answer='12:30')", Act("done", answer="12:30")),
        (
            "apis.a.b(x=-3.5, y=[1, 'a'], z={'k': None})",
            Act("call", "a.b", {"x": -3.5, "y": [1, "a"], "z": {"k": None}}),
        ),
    ],
)
def test_what_is_read(text, act):
    assert read_turn(text) == act


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a thought",
        "hello",
        "1 + 1",
        "apis.mail.show(3)",
        "apis.mail.show(**{'a': 1})",
        "mail.show(a=1)",
        "__import__('os').system('true')",
        "apis.mail.show(message_id=__import__('os'))",
        "apis.mail.show(x=open)",
        "apis.mail.show(x=1 if True else 2)",
        "apis.mail.show(x=[i for i in 'ab'])",
        "apis.mail.show(x=b'1')",
        "apis.mail.show(x={1, 2})",
        "apis.mail.show(x=1j)",
        "apis.mail.show(x=1e999)",
        "apis.mail.show(x={1: 2})",
        "apis.mail.__class__(x=1).y()",
        "done(answer=[1])",
        "done(1)",
        "done(other=1)",
        "{}",
        "[1]",
        '{"function": 3}',
        '{"function": "mail.show", "arguments": [1]}',
        '{"function": "mail.show", "extra": 1}',
        "(" * 5000,
        '{"function": "mail.show", "arguments": {"x": NaN}}',
        "x" * 30_000,
        "apis.mail.show(x=lambda: 1)",
        "\0",
        "apis.mail.show(x=(1, 2))",
        "apis.mail.show(x=1, x=2)",
        "a;b",
        "apis['mail'].show(x=1)",
    ],
)
def test_what_is_refused(text):
    act = read_turn(text)
    assert act.kind == "unreadable"
    assert act.name


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(arguments=st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), _JSON, max_size=4))
def test_what_is_written_is_read_back(arguments):
    import keyword

    arguments = {
        key: value for key, value in arguments.items() if not keyword.iskeyword(key) and plain(value)
    }
    assert read_turn(call_text("a.b", arguments)) == Act("call", "a.b", arguments)
    assert read_turn(tool_text("t", arguments)) == Act("tool", "t", arguments)


@given(answer=st.none() | st.text(max_size=30))
def test_the_end_is_read_back(answer):
    assert read_turn(done_text(answer)) == Act("done", answer=answer)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=80))
def test_no_text_raises(text):
    assert read_turn(text).kind in ("call", "tool", "done", "unreadable")
