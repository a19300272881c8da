"""What a turn may say: one call, or the end. Read with the ``ast`` module and never evaluated."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from refork.types import Json

_LONGEST = 20_000
_FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
Kind: TypeAlias = Literal["call", "tool", "done", "unreadable"]


@dataclass(frozen=True, slots=True)
class Act:
    """One turn, read.

    ``call``: ``name`` is "app.function". ``tool``: ``name`` is a tool's. ``done``: ``answer`` where one was
    given. ``unreadable``: ``name`` says why.
    """

    kind: Kind
    name: str = ""
    arguments: Json = field(default_factory=dict)
    answer: str | int | float | None = None


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as a turn writes it."""
    return f"apis.{name}({_keywords(arguments)})"


def tool_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A tool call as a turn writes it."""
    return f"tools.{name}({_keywords(arguments)})"


def done_text(answer: str | None = None) -> str:
    """The end of a run as a turn writes it."""
    return "done()" if answer is None else f"done(answer={answer!r})"


def _keywords(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


def read_turn(text: str) -> Act:
    """What a turn says: the last line that is no comment, a fenced block, or one JSON object.

    Prose around a fenced block, and lines before the last, are thoughts and pass unread.
    """
    fenced = _FENCE.findall(text)
    body = fenced[-1] if fenced else text
    lines = [line for line in body.strip().split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        return Act("unreadable", "there is no call")
    if len(body) > _LONGEST:
        return Act("unreadable", f"a turn may have {_LONGEST} characters")
    whole = "\n".join(lines).strip()
    act = read_expression(whole)
    return act if act.kind != "unreadable" or len(lines) == 1 else read_expression(lines[-1].strip())


def read_expression(text: str) -> Act:
    """One call expression or JSON object."""
    if text.startswith("{"):
        return _read_json(text)
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Act("unreadable", "this is not one call with plain values")
    if not isinstance(tree, ast.Call):
        return Act("unreadable", "this is not a call")
    if tree.args or any(keyword.arg is None for keyword in tree.keywords):
        return Act("unreadable", "give every value by name: name=value")
    # The parser takes a keyword twice; only the compiler, which never sees this text, would refuse it.
    if len({keyword.arg for keyword in tree.keywords}) < len(tree.keywords):
        return Act("unreadable", "a value is given twice")
    arguments: Json = {}
    for keyword in tree.keywords:
        try:
            value = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return Act("unreadable", f"{keyword.arg}: this is not a plain value")
        if not plain(value):
            return Act("unreadable", f"{keyword.arg}: this is not a text, a number, a list or an object")
        arguments[str(keyword.arg)] = value
    return _named(_dotted(tree.func), arguments)


def _dotted(node: ast.expr) -> list[str]:
    """``a.b.c`` as its names; empty where it is something else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def _named(names: list[str], arguments: Json) -> Act:
    if names == ["done"]:
        answer = arguments.pop("answer", None)
        if arguments or not (answer is None or isinstance(answer, str | int | float)):
            return Act("unreadable", "done takes an answer, a text or a number, and nothing else")
        return Act("done", answer=answer)
    if len(names) == 3 and names[0] == "apis":
        return Act("call", f"{names[1]}.{names[2]}", arguments)
    if len(names) == 2 and names[0] == "tools":
        return Act("tool", names[1], arguments)
    return Act("unreadable", "a call is apis.app.function(...), tools.name(...) or done()")


def _read_json(text: str) -> Act:
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return Act("unreadable", "this is not a JSON object")
    if not isinstance(data, dict):
        return Act("unreadable", "this is not a JSON object")
    arguments = data.get("arguments", {})
    name = data.get("function", "")
    if not isinstance(arguments, dict) or not isinstance(name, str) or set(data) - {"function", "arguments"}:
        return Act("unreadable", 'a call is {"function": "app.function", "arguments": {...}}')
    names = name.split(".")
    return _named(names if names[0] in ("done", "tools", "apis") else ["apis", *names], dict(arguments))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def plain(value: Any) -> bool:
    """Whether a value is JSON: no bytes, sets, complex or infinite numbers."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(plain(item) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int)
