"""Tool calls of an assistant message: OpenAI's own form, or one of four forms written in the text.

Forms in the text: ``<tool_call>{...}</tool_call>``; a JSON object or a list of them, bare or in a fenced
block; a Python call with keyword literals, ``send_email(to="a@b.org")``; and the compact line
``call send_email | to a@b.org | body hello`` that a model with a small vocabulary can write. A message whose
``tool_calls`` are set is read by those alone, for its text is not executed.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from refork.formats.openai_chat import text_of
from refork.types import Json, Message

_TAG = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_OPENING = re.compile(r"[\[{]")
_COMPACT = re.compile(r"^[ \t]*call[ \t]+(?P<name>[a-z]\w*)[ \t]*(?P<rest>\|.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^[ \t]*(?P<call>[A-Za-z_][\w.]*\(.*\))[ \t]*$", re.MULTILINE)
_HINTS = re.compile(
    r"<tool_call>|\"(?:name|tool|function|arguments)\"\s*:|\A\s*call[ \t]+[a-z_]+\s*\Z", re.IGNORECASE
)
_NAMES = ("name", "tool", "tool_name", "function")
_ARGUMENTS = ("arguments", "args", "parameters", "input")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: the tool's name and its arguments. Numbers that a float would round are kept as text."""

    name: str
    arguments: Json = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Unparseable:
    """A message that tries to call a tool, or answers nothing, and cannot be read as a call."""

    reason: str


class _Malformed(ValueError):
    """This is meant as a call and is none."""


def calls_in(message: Message) -> list[ToolCall] | Unparseable:
    """The tool calls of an assistant message that can be read, in order; none where it only speaks.

    A message that is empty, or that begins calls of which none can be read, is :class:`Unparseable`.
    """
    calls, broken = read_calls(message)
    return calls if calls or not broken else Unparseable("; ".join(broken))


def read_calls(message: Message) -> tuple[list[ToolCall], list[str]]:
    """The calls of an assistant message that can be read, and why each of the others cannot."""
    made = message.get("tool_calls") or []
    if not made and isinstance(message.get("function_call"), dict):
        made = [message["function_call"]]
    if made:
        return _each(_openai, made if isinstance(made, list | tuple) else [made])
    text = text_of({"content": message.get("content")})
    return _in_text(text) if text.strip() else ([], ["the message is empty"])


def _each(read: Callable[[Any], list[ToolCall]], items: Iterable[Any]) -> tuple[list[ToolCall], list[str]]:
    calls: list[ToolCall] = []
    broken: list[str] = []
    for item in items:
        try:
            calls += read(item)
        except _Malformed as error:
            broken.append(str(error))
    return calls, broken


def compact(call: ToolCall) -> str:
    """A call as one compact line; :func:`calls_in` reads it back, all values as text."""
    parts = [f"call {call.name}", *(f"{key} {value}" for key, value in call.arguments.items())]
    return " | ".join(" ".join(part.split()) for part in parts)


def openai_call(call: ToolCall, name: str = "call_0") -> Message:
    """A call as an assistant message of the OpenAI form."""
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    made = {"id": call.id or name, "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [made]}


def _openai(call: Any) -> list[ToolCall]:
    if not isinstance(call, dict):
        raise _Malformed("a tool call is no object")
    inner = call.get("function", call)
    found = _as_call(inner) if isinstance(inner, dict) else None
    if found is None:
        raise _Malformed("a tool call without a name or without arguments")
    name = call.get("id")
    return [ToolCall(found.name, found.arguments, name if isinstance(name, str) else None)]


def _in_text(text: str) -> tuple[list[ToolCall], list[str]]:
    """Calls in tags where there are tags, else in any other form; a fence is looked into as the rest."""
    tagged = _TAG.findall(text)
    if tagged or "<tool_call>" in text:
        calls, broken = _each(_tagged, tagged)
        open_ = text.count("<tool_call>") > len(tagged)
        return calls, broken + ["a <tool_call> tag is not closed"] * open_
    try:
        tried = sorted([*_values(text), *_python(text), *_lines(text)], key=lambda one: one.start)
    except RecursionError:
        return [], ["nested too deep to be a call"]
    calls, broken, end = [], [], 0
    for one in tried:
        # What stands within a call is an argument of it, whatever it looks like.
        if one.start < end:
            continue
        made, wrong = _each(one.read, [one.what])
        calls, broken = calls + made, broken + wrong
        end = one.end if made else end
    if not calls and not broken and _HINTS.search(text):
        broken.append("the text looks like a call and is none that can be read")
    return calls, broken


def _tagged(body: str) -> list[ToolCall]:
    try:
        found = _objects(_load(body.strip()))
    except ValueError as error:
        raise _Malformed(f"not JSON: {error}") from None
    if not found:
        raise _Malformed("an object without a name and arguments")
    return found


@dataclass(frozen=True, slots=True)
class _Tried:
    """A part of a text that may be a call, and what reads it."""

    start: int
    end: int
    read: Callable[[Any], list[ToolCall]]
    what: Any


def _values(text: str) -> Iterator[_Tried]:
    """All JSON objects and lists that stand in a text, the outermost of each."""
    place = 0
    while (start := _OPENING.search(text, place)) is not None:
        try:
            value, place = _DECODER.raw_decode(text, start.start())
        except ValueError:
            place = start.end()
            continue
        yield _Tried(start.start(), place, _objects, value)


def _python(text: str) -> Iterator[_Tried]:
    for match in _PYTHON.finditer(text):
        yield _Tried(*match.span("call"), _python_call, match["call"])


def _lines(text: str) -> Iterator[_Tried]:
    for match in _COMPACT.finditer(text):
        yield _Tried(*match.span(), _line, match)


def _python_call(text: str) -> list[ToolCall]:
    """The call that a line of Python is; none where it is other code."""
    try:
        with warnings.catch_warnings():  # of the model's code, not of ours
            warnings.simplefilter("ignore")
            node = ast.parse(text, mode="eval").body
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print" and len(node.args) == 1:
            node = node.args[0]
        if not isinstance(node, ast.Call) or node.args or not node.keywords:
            return []
        node = _Floats(text).visit(node)
        arguments = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords if k.arg}
        name = ast.unparse(node.func).rpartition(".")[2]
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return []
    try:
        # Tuples and keys that are numbers become what JSON has for them.
        return [ToolCall(name, json.loads(json.dumps(arguments, allow_nan=False)))]
    except (TypeError, ValueError) as error:
        raise _Malformed(f"the arguments of {name} are not JSON: {error}") from None


class _Floats(ast.NodeTransformer):
    """Makes texts of the numbers of a call that a float would round."""

    def __init__(self, source: str) -> None:
        self._source = source

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._written(node, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        signed = isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
        return self._written(node, node.operand, "-") if signed else node

    def _written(self, node: ast.expr, number: ast.expr, sign: str = "") -> ast.expr:
        if not isinstance(number, ast.Constant) or not isinstance(number.value, float):
            return node
        return ast.Constant(_number(f"{sign}{ast.get_source_segment(self._source, number)}"))


def _line(match: re.Match[str]) -> list[ToolCall]:
    arguments: Json = {}
    for part in match["rest"].split("|")[1:]:
        key, _, value = part.strip().partition(" ")
        if not key:
            raise _Malformed("a compact call with an empty field")
        arguments[key] = value.strip()
    return [ToolCall(match["name"].strip(), arguments)]


def _objects(value: Any) -> list[ToolCall]:
    """The calls of a JSON value: an object, or a list of objects all of which are calls."""
    if isinstance(value, list):
        calls = [_as_call(item) for item in value if isinstance(item, dict)]
        return [call for call in calls if call is not None]
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        return [call for made in value["tool_calls"] for call in _openai(made)]
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        return _openai(value)
    call = _as_call(value) if isinstance(value, dict) else None
    return [] if call is None else [call]


def _as_call(value: Json) -> ToolCall | None:
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    key = next((key for key in _ARGUMENTS if key in value), None)
    if not name or not name.strip() or key is None:
        return None
    arguments = value[key]
    if isinstance(arguments, str):
        try:
            arguments = _load(arguments or "{}")
        except ValueError as error:
            raise _Malformed(f"the arguments of {name} are not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise _Malformed(f"the arguments of {name} are no object")
    return ToolCall(name.strip().removeprefix("functions."), arguments)


def _number(text: str) -> float | str:
    """A JSON number as a float where that is exact, else as it was written."""
    # A float prints the shortest text that reads as it: where that is another number, something was lost.
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else text


_DECODER = json.JSONDecoder(parse_float=_number, strict=False)


def _load(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise _Malformed("nested too deep to be a call") from None
