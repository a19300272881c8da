"""What brings a run back: broken calls repaired where only one reading exists, and loops noticed.

Source: arXiv:2606.24820 names the parts; every repair, limit and wording is ours.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import final

from refork.tool_calls import ToolCall
from refork.types import Json
from refork_methods.localize.arguments import TOOL_ALIASES, canonical, tool_named
from refork_methods.localize.tools import RepoTools

_TOOLS = sorted({*(one["function"]["name"] for one in RepoTools.schemas()), *TOOL_ALIASES}, key=len)[::-1]
_NAME = "|".join(map(re.escape, _TOOLS))
#: A tool's name right before an object: other models' own forms (`<function=search>{`, `Action: search`).
_HEADED = re.compile(
    rf"(?<![\w.\"'])(?P<name>{_NAME})\b[\s\]>`:]*(?:<[^<>\n]{{0,40}}>\s*)?"
    r"(?:action[ _]input\s*:\s*)?(?:```(?:json)?\s*)?(?=\{)",
    re.IGNORECASE,
)
_XML = re.compile(r"<function=(?P<name>[\w.-]+)>(?P<body>.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=(?P<key>\w+)>\n?(?P<value>.*?)\n?</parameter>", re.DOTALL)
_PYTHON = re.compile(rf"^[\s`>]*(?P<call>(?:[\w]+\.)?(?:{_NAME})\(.*\))[\s`;]*$", re.MULTILINE)
_KEY = re.compile(r"(?P<before>[{,]\s*)(?P<key>[A-Za-z_]\w*)(?P<after>\s*:)")
#: Objects in one text that a repair is tried on; a text of braces alone must not take for ever.
_MOST = 50
_NAMES = ("tool", "name", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "args", "parameters", "input", "params", "action_input", "kwargs")


@final
@dataclass(frozen=True, slots=True)
class Repaired:
    """A call (tool and arguments as written) or another object that a broken text can only mean."""

    value: Json
    tool: str | None
    arguments: object
    how: str


def repairs(text: str) -> list[Repaired]:
    """Every reading of a text in which no call stands as it should; a caller accepts one reading only."""
    found = [*_xml(text), *_python_calls(text)]
    taken: list[tuple[int, int]] = []
    for head in islice(_HEADED.finditer(text), _MOST):
        chunk = _balanced(text, head.end())
        value, how = _object(chunk)
        if value is not None:
            inner = _as_call(value, how)
            taken.append((head.end(), head.end() + len(chunk)))
            found.append(inner or Repaired(value, head["name"], value, f"name before an object{_and(how)}"))
    place = 0
    for _ in range(_MOST):
        at = text.find("{", place)
        if at < 0:
            break
        chunk = _balanced(text, at)
        place = at + max(len(chunk), 1)
        if any(low <= at < high for low, high in taken):
            continue
        value, how = _object(chunk)
        if value is None:
            place = at + 1 if not _whole(chunk) else place
            continue
        found.append(_as_call(value, how) or Repaired(value, None, None, how or "object"))
    return found


def salvaged(text: str) -> list[Json]:
    """The complete locations of a case file that was cut off."""
    start = re.search(r"\"locations\"\s*:\s*\[", text)
    if start is None:
        return []
    found: list[Json] = []
    place = start.end()
    decoder = json.JSONDecoder(strict=False)
    while (step := re.compile(r"[\s,]*(?=\{)").match(text, place)) is not None:
        try:
            value, place = decoder.raw_decode(text, step.end())
        except (ValueError, RecursionError):
            break
        if isinstance(value, dict):
            found.append(value)
    return found


@final
@dataclass(slots=True)
class LoopWatch:
    """Remembers what was asked; the same call again is noticed and not to be run."""

    asked: dict[str, int] = field(default_factory=dict)
    notices: int = 0

    def earlier(self, call: ToolCall, turn: int) -> int | None:
        """The turn in which the same call was made, counted as a notice; None where this is the first."""
        key = canonical(call)
        first = self.asked.setdefault(key, turn)
        if first == turn:
            return None
        self.notices += 1
        return first


def _and(how: str) -> str:
    return f", {how}" if how else ""


def _as_call(value: Json, how: str) -> Repaired | None:
    """An object as a call: named arguments, arguments beside the name, or the tool as the only key."""
    name = next((key for key in _NAMES if isinstance(value.get(key), str)), None)
    if name is not None and tool_named(str(value[name])) is not None:
        key = next((key for key in _ARGUMENTS if key in value), None)
        if key is not None:
            arguments: object = value[key]
            if isinstance(arguments, str):
                inner, also = _object(arguments)
                arguments = inner if inner is not None else arguments
                how = how or also
            return Repaired(value, str(value[name]), arguments, how or f"object with {key!r}")
        flat = {other: one for other, one in value.items() if other != name and other not in ("id", "type")}
        return Repaired(value, str(value[name]), flat, f"arguments beside the name{_and(how)}")
    if len(value) == 1:
        (only, inside) = next(iter(value.items()))
        if tool_named(only) is not None and isinstance(inside, dict | list):
            return Repaired(value, only, inside, f"tool as the key{_and(how)}")
    return None


def _xml(text: str) -> Iterator[Repaired]:
    for found in _XML.finditer(text):
        parameters = {one["key"]: one["value"] for one in _PARAMETER.finditer(found["body"])}
        if parameters:
            yield Repaired(parameters, found["name"], parameters, "function and parameter tags")


def _python_calls(text: str) -> Iterator[Repaired]:
    for found in _PYTHON.finditer(text):
        try:
            with warnings.catch_warnings():  # of the model's code, not of ours
                warnings.simplefilter("ignore")
                node = ast.parse(found["call"], mode="eval").body
            if not isinstance(node, ast.Call) or any(one.arg is None for one in node.keywords):
                continue
            given = [ast.literal_eval(one) for one in node.args]
            named = {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
        if given and named:
            continue  # which parameter the named ones leave to the positions would be a guess
        yield Repaired(named, ast.unparse(node.func), named or given, "a call in Python")


def _balanced(text: str, start: int) -> str:
    """The text from an opening brace to its partner, or to the end where it has none."""
    depth, quote, at = 0, "", start
    while at < len(text):
        letter = text[at]
        if quote:
            if letter == "\\":
                at += 1
            elif letter == quote:
                quote = ""
        elif letter == '"' or (letter == "'" and text[at - 1] in "{[,: (\n"):
            quote = letter
        elif letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
            if depth == 0:
                return text[start : at + 1]
        at += 1
    return text[start:]


def _whole(chunk: str) -> bool:
    return chunk.endswith("}")


def _object(chunk: str) -> tuple[Json | None, str]:
    """An object read after at most one kind of repair, and which; None where none makes it one."""
    chunk = chunk.strip()
    while chunk.endswith("`"):
        chunk = chunk.rstrip("`").rstrip()
    chunk = re.sub(r"\s*</?[\w|]+>\s*\Z", "", chunk)
    tries = [
        (chunk, ""),
        (re.sub(r",(\s*[}\]])", r"\1", chunk), "trailing comma"),
        (chunk + "}", "missing brace"),
        (chunk + "]", "missing bracket"),
        (_KEY.sub(r'\g<before>"\g<key>"\g<after>', chunk), "keys without quotes"),
    ]
    if '"' not in chunk:
        tries.append((chunk.replace("“", '"').replace("”", '"'), "curved quotes"))
    for text, how in tries:
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value, how
    for text, also in ((chunk, ""), (chunk + "}", " and a missing brace")):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            continue
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value, f"Python's quotes{also}"
    return None, ""
