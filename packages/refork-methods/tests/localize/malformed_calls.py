"""Thirty broken or foreign tool calls, each with the one thing it can mean or the reason to refuse it.

The forms are those that open models are known to write: other templates' tags, Python's quotes, lost braces.
Rows: (name, message or text, finish, expected). Expected is (tool, arguments), "case", or a kind of refusal.
"""

from __future__ import annotations

from typing import Any

VIEW = ("view_file", {"path": "a.py"})
LINES = ("view_file", {"path": "a.py", "start": 1, "end": 50})
FIND = ("search", {"text": "parse"})


def native(arguments: Any, name: str = "view_file", more: int = 0) -> dict[str, Any]:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n in range(1 + more)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


REPAIRED: list[tuple[str, Any, str, Any]] = [
    ("fenced", 'Look.\n```json\n{"tool": "search", "arguments": {"text": "parse"}}\n```', "stop", FIND),
    ("single quotes", "{'tool': 'search', 'arguments': {'text': 'parse'}}", "stop", FIND),
    ("missing brace", '{"tool": "search", "arguments": {"text": "parse"}', "stop", FIND),
    ("alias of tool", '{"tool": "read_file", "arguments": {"path": "a.py"}}', "stop", VIEW),
    ("alias of argument", '{"tool": "view_file", "arguments": {"file_path": "a.py"}}', "stop", VIEW),
    ("one positional argument", '{"tool": "search", "arguments": "parse"}', "stop", FIND),
    ("positional list", '{"tool": "view_file", "arguments": ["a.py", 1, 50]}', "stop", LINES),
    ("call in Python", 'view_file("a.py", 1, 50)', "stop", LINES),
    ("unclosed tag", '<tool_call>{"name": "search", "arguments": {"text": "parse"}}', "stop", FIND),
    ("numbers as text", '{"tool": "view_file", "arguments": {"path": "a.py", "start": "1", "end": "50"}}',
     "stop", LINES),
    ("range for start and end", '{"tool": "view", "arguments": {"path": "a.py", "view_range": [1, 50]}}',
     "stop", LINES),
    ("trailing comma", '{"tool": "search", "arguments": {"text": "parse",},}', "stop", FIND),
    ("keys without quotes", '{tool: "search", arguments: {text: "parse"}}', "stop", FIND),
    ("flat", '{"tool": "view_file", "path": "a.py", "start": 1, "end": 50}', "stop", LINES),
    ("tool as the key", '{"search": {"text": "parse"}}', "stop", FIND),
    ("function and parameter tags",
     "<tool_call>\n<function=view_file>\n<parameter=path>\na.py\n</parameter>\n</function>\n</tool_call>",
     "stop", VIEW),
    ("name before an object", '[TOOL_CALLS]search{"text": "parse"}', "stop", FIND),
    ("action and input", 'Thought: look.\nAction: search\nAction Input: {"text": "parse"}', "stop", FIND),
    ("native, encoded twice", native('"{\\"path\\": \\"a.py\\"}"'), "stop", VIEW),
    ("native, Python's quotes", native("{'path': 'a.py'}"), "stop", VIEW),
]  # fmt: skip
REFUSED: list[tuple[str, Any, str, Any]] = [
    ("two different calls", '{"tool": "search", "arguments": {"text": "a"}}\n'
     '{"tool": "search", "arguments": {"text": "b"}}', "stop", "malformed"),
    ("a call and a case file", '{"tool": "search", "arguments": {"text": "a"}}\n{"locations": []}',
     "stop", "malformed"),
    ("unknown tool", '{"tool": "run_tests", "arguments": {"path": "a.py"}}', "stop", "malformed"),
    ("missing argument", '{"tool": "view_file", "arguments": {"start": 3}}', "stop", "malformed"),
    ("unknown argument", '{"tool": "search", "arguments": {"text": "a", "regex": true}}',
     "stop", "malformed"),
    ("number of words", '{"tool": "view_file", "arguments": {"path": "a.py", "start": "ten"}}',
     "stop", "malformed"),
    ("given twice, differently", '{"tool": "view_file", "arguments": {"path": "a.py", "file": "b.py"}}',
     "stop", "malformed"),
    ("no argument", '{"tool": "search", "arguments": {}}', "stop", "malformed"),
    ("cut in the middle", '{"tool": "search", "arguments": {"text": "par', "length", "length"),
    ("only thought of", '<think>{"tool": "search", "arguments": {"text": "a"}}</think> Hm.',
     "stop", "silent"),
]  # fmt: skip
