"""Tool calls as text: one writing of each call, wherever it comes from."""

import json

from refork.calls import call_text, message_calls
from refork.forking.context import called
from refork_worlds.tools.call import call_line


def test_the_name_comes_first_and_arguments_keep_their_order():
    wanted = '{"name":"wc","arguments":{"path":"a","all":true}}'
    arguments = {"path": "a", "all": True}
    message = {
        "role": "assistant",
        "tool_calls": [{"id": 7, "function": {"name": "wc", "arguments": arguments}}],
    }
    text = {"role": "assistant", "function_call": {"name": "wc", "arguments": json.dumps(arguments)}}
    assert call_text("wc", arguments) == wanted
    assert message_calls(message) == [("7", wanted)]
    assert message_calls(text) == [(None, wanted)]
    assert called(message) == called(text) == wanted
    assert call_line('{"arguments": {"path": "a", "all": true}, "name": "wc"}') == wanted
    assert called({"role": "assistant", "content": "ls"}) is None


def test_odd_calls():
    assert call_text("submit") == call_text("submit", {}) == '{"name":"submit","arguments":{}}'
    assert call_text("say", {"text": "日本"}) == '{"name":"say","arguments":{"text":"日本"}}'
    half = call_text("say", json.loads('{"text": "\\ud800"}'))
    assert half.isascii()
    assert json.loads(half)["arguments"] == {"text": "\ud800"}
    broken = {"tool_calls": [{"name": "wc", "arguments": "{path"}, "no call"]}
    assert message_calls(broken) == [(None, '{"name":"wc","arguments":"{path"}')]
    deep = "[" * 100_000
    assert message_calls({"tool_calls": [{"name": "a", "arguments": deep}]})[0][1].endswith('["}')
