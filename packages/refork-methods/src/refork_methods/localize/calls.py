"""One model turn read: a tool call, a case file, or why neither; mended where one reading exists."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.tool_calls import ToolCall, read_calls
from refork.types import Finish, Json, Message
from refork_methods.localize.snapshot import clean
from refork_methods.localize.tools import RepoTools

# A call made to fit its tool: aliases, positions, numbers written as text; only where one reading exists.

#: Names that agents of other harnesses know these tools by.
TOOL_ALIASES = {
    "view": "view_file", "viewfile": "view_file", "read_file": "view_file", "open_file": "view_file",
    "cat": "view_file", "show_file": "view_file", "get_file": "view_file",
    "codebase_search": "search", "search_code": "search", "search_codebase": "search", "grep": "search",
    "find": "search", "search_text": "search",
    "repository_tree": "tree", "repo_tree": "tree", "list_files": "tree", "list_dir": "tree",
    "list_directory": "tree", "ls": "tree",
    "connected_tree": "connected", "connected_files": "connected", "get_connected": "connected",
}  # fmt: skip
_PATHS = ("file", "filename", "file_path", "filepath", "file_name", "path_name")
_FOLDERS = ("dir", "directory", "folder", "root", "dir_path")
_TEXTS = ("query", "pattern", "string", "q", "term", "keyword", "search_text", "needle")
_ARGUMENT_ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    "view_file": {
        "path": _PATHS,
        "start": ("start_line", "line_start", "first", "from", "begin"),
        "end": ("end_line", "line_end", "last", "to", "stop"),
    },
    "search": {
        "text": _TEXTS,
        "path_glob": ("glob", "include", "file_pattern"),
        "max_hits": ("max_results", "limit", "top_k", "n"),
    },
    "tree": {"path": (*_FOLDERS, *_PATHS), "depth": ("max_depth", "levels", "level")},
    "connected": {"path": _PATHS, "hops": ("depth", "max_hops", "distance")},
}
_RANGES = ("range", "view_range", "line_range", "lines")
_DEFAULTS: dict[str, Json] = {
    "view_file": {"start": 1}, "search": {"max_hits": 50}, "tree": {"path": ".", "depth": 2},
    "connected": {"hops": 1},
}  # fmt: skip


@lru_cache(maxsize=1)
def _parameters() -> dict[str, dict[str, str]]:
    """Tool -> argument -> type, in the order of the signature."""
    return {
        one["function"]["name"]: {
            key: about["type"] for key, about in one["function"]["parameters"]["properties"].items()
        }
        for one in RepoTools.schemas()
    }


@lru_cache(maxsize=1)
def _required() -> dict[str, tuple[str, ...]]:
    return {
        one["function"]["name"]: tuple(one["function"]["parameters"]["required"])
        for one in RepoTools.schemas()
    }


def tool_named(name: str) -> str | None:
    """The tool that a name or an alias of it stands for; None where there is none."""
    plain = name.strip().strip("`\"'").rpartition(".")[2].lower().replace("-", "_").replace(" ", "_")
    if plain in _parameters():
        return plain
    return TOOL_ALIASES.get(plain)


def fit(name: str, given: object) -> tuple[ToolCall, tuple[str, ...]]:
    """A call that fits its tool, and what had to be repaired for that.

    ``given``: the arguments by name, by position, or the one argument that the tool needs.

    Raises: BadInput where the tool is unknown, or the arguments fit in no way or in several.
    """
    tool = tool_named(name)
    if tool is None:
        raise BadInput(f"there is no tool {name!r}; there are {', '.join(_parameters())}")
    repairs = () if tool == name else (f"tool {name!r} read as {tool!r}",)
    if isinstance(given, Mapping):
        named, also = _named(tool, given)
    else:
        named, also = _positional(tool, given)
    arguments, numbers = _typed(tool, named)
    for key in _required()[tool]:
        if key not in arguments:
            raise BadInput(f"{tool}: {key} is missing")
    return ToolCall(tool, arguments), (*repairs, *also, *numbers)


def canonical(call: ToolCall) -> str:
    """One text for calls that ask the same: defaults left out, keys in order, paths plain."""
    kept: Json = {}
    for key, value in call.arguments.items():
        plain = (clean(value) or ".") if key == "path" and isinstance(value, str) else value
        if value is not None and _DEFAULTS.get(call.name, {}).get(key) != plain:
            kept[key] = plain
    return json.dumps([call.name, kept], sort_keys=True, ensure_ascii=False)


def _named(tool: str, given: Mapping[object, object]) -> tuple[Json, tuple[str, ...]]:
    parameters, aliases = _parameters()[tool], _ARGUMENT_ALIASES[tool]
    found: Json = {}
    repairs: list[str] = []
    for raw, value in given.items():
        key = str(raw)
        if key in _RANGES and tool == "view_file":
            first, last = _range(key, value)
            pairs: list[tuple[str, object]] = [("start", first), ("end", last)]
        else:
            name = key if key in parameters else next((n for n, also in aliases.items() if key in also), None)
            if name is None:
                raise BadInput(f"{tool}: it takes {', '.join(parameters)}, not {key}")
            pairs = [(name, value)]
        if pairs[0][0] != key:
            repairs.append(f"argument {key!r} read as {' and '.join(repr(name) for name, _ in pairs)}")
        for name, one in pairs:
            if one is None:
                continue
            if name in found and found[name] != one:
                raise BadInput(f"{tool}: {name} is given twice, and differently")
            found[name] = one
    return found, tuple(repairs)


def _positional(tool: str, given: object) -> tuple[Json, tuple[str, ...]]:
    parameters = list(_parameters()[tool])
    values = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if len(values) > len(parameters):
        raise BadInput(f"{tool}: {len(values)} arguments for {', '.join(parameters)}")
    return dict(zip(parameters, values, strict=False)), ("arguments by position",) if values else ()


def _range(key: str, value: object) -> tuple[int, int]:
    pair = value
    if isinstance(value, str):
        parts = value.replace(":", "-").split("-")
        pair = [int(part) for part in parts if part.strip().isdecimal()] if len(parts) == 2 else None
    if not isinstance(pair, Sequence) or len(pair) != 2 or not all(type(n) is int for n in pair):
        raise BadInput(f"view_file: {key} is {value!r}; give start and end")
    return pair[0], pair[1]


def _typed(tool: str, given: Json) -> tuple[Json, tuple[str, ...]]:
    """Whole numbers that stand as text or as floats; every other value of another type is refused."""
    found: Json = {}
    repairs: list[str] = []
    for key, value in given.items():
        kind = _parameters()[tool][key]
        if kind == "string" and not isinstance(value, str):
            raise BadInput(f"{tool}: {key} is a string, not {value!r}")
        if kind == "integer" and (isinstance(value, bool) or not isinstance(value, int)):
            whole = _whole(value)
            if whole is None:
                raise BadInput(f"{tool}: {key} is an integer, not {value!r}")
            repairs.append(f"{key} {value!r} read as a number")
            found[key] = whole
            continue
        found[key] = value
    return found, tuple(repairs)


def _whole(value: object) -> int | None:
    if isinstance(value, str) and len(value) < 10 and value.strip().isdecimal() and value.isascii():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


# What brings a run back: broken calls repaired where only one reading exists, and loops noticed.
#
# Source: arXiv:2606.24820 names the parts; every repair, limit and wording is ours.

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
        # An object behind a tool's name was read with it: a second reading would make it ambiguous.
        if any(low <= at < high for low, high in taken):
            continue
        value, how = _object(chunk)
        if value is None:
            # An open brace reaches to the end of the text; what is readable may still stand inside it.
            place = at + 1 if not _closed(chunk) else place
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
    # Not strict: models write line feeds into their strings.
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
        # An apostrophe inside a word opens no string.
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


def _closed(chunk: str) -> bool:
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


# One model turn read: a tool call, a case file, or why it is neither.

#: Characters of an answer with neither call nor case file from which it is over-long.
LONGEST = 12_000
#: Characters beside thoughts from which an answer is over-long whatever it holds.
MOST_READ = 30_000

_THINKS = re.compile(r"<(/?)(?:think|thinking|reasoning)>")
_TRIES = re.compile(
    r"\"(?:tool|name|arguments|locations)\"|'(?:tool|name|arguments|locations)'|<tool_call>|<function"
    r"|\[TOOL_CALLS\]|Action\s*:|```json",
)


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """A tool call; ``repairs`` says what had to be mended, empty where it was well-formed."""

    call: ToolCall
    repairs: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Answered:
    """A case file as the model wrote it."""

    data: Json
    repairs: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class NotRead:
    """Neither: a broken or ambiguous call, an answer cut off or over-long, or no call at all."""

    kind: Literal["malformed", "length", "silent"]
    why: str


Reading: TypeAlias = Asked | Answered | NotRead
_Call: TypeAlias = tuple[str, object, tuple[str, ...]]


def read_reply(message: Message, finish: Finish = "stop") -> Reading:
    """Read one assistant message. Native calls win over the text; thoughts are not read.

    A broken call is repaired only where a single reading exists; what was cut off is never repaired.
    """
    if message.get("tool_calls") or message.get("function_call"):
        return _native(message, finish)
    text = spoken(text_of({"content": message.get("content")}))
    if not text.strip():
        return NotRead("length" if finish == "length" else "silent", "the message says nothing")
    if len(text) > MOST_READ:
        return NotRead("length", f"the answer has {len(text):,} characters")
    plain = _plain(text)
    if plain is not None:
        return plain
    if finish == "length":
        return NotRead("length", "the answer was cut off")
    # Only now: where something stands as it should, nothing else in the text is guessed at.
    mended = _mended(text)
    if mended is not None:
        return mended
    if len(text) > LONGEST:
        return NotRead("length", f"the answer has {len(text):,} characters and neither call nor case file")
    return NotRead("silent", "there is neither a tool call nor a case file")


def spoken(text: str) -> str:
    """A text without its thoughts; one that ends while thinking says nothing after it began."""
    kept: list[str] = []
    place, thinking = 0, False
    for tag in _THINKS.finditer(text):
        if tag[1]:
            # A closing tag alone: the template opened the thought before the answer began.
            kept = kept if thinking else []
            thinking, place = False, tag.end()
        elif not thinking:
            kept.append(text[place : tag.start()])
            thinking = True
    return "".join(kept if thinking else [*kept, text[place:]])


def cut_case(message: Message) -> Json | None:
    """The complete locations of a case file that a cut-off message began; None where there are none."""
    rows = salvaged(spoken(text_of({"content": message.get("content")})))
    return {"locations": rows} if rows else None


def _native(message: Message, finish: Finish) -> Reading:
    made = message.get("tool_calls") or [message["function_call"]]
    readings: list[_Call] = []
    for one in made if isinstance(made, list | tuple) else [made]:
        inner = one.get("function", one) if isinstance(one, dict) else None
        if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
            return NotRead("malformed", "a tool call without a name")
        given, how = inner.get("arguments") or {}, ""
        if isinstance(given, str):
            try:
                given = json.loads(given, strict=False)
            except (ValueError, RecursionError):
                if finish == "length":
                    return NotRead("length", "the call was cut off")
                found = repairs(given)
                if len(found) != 1:
                    return NotRead("malformed", f"the arguments of {inner['name']} are not JSON")
                given, how = found[0].value, found[0].how
            if isinstance(given, str):
                given = _twice(given)
        readings.append((inner["name"], given, (how,) if how else ()))
    return _one(readings, [])


def _twice(text: str) -> object:
    """Arguments that were encoded twice, decoded once more where that gives an object."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _plain(text: str) -> Reading | None:
    """What stands in a text as it should: JSON bare, fenced or tagged, or a call with named literals."""
    calls, broken = read_calls({"content": text})
    known = [call for call in calls if tool_named(call.name) is not None]
    cases = _cases(text)
    if known and broken:
        return NotRead("malformed", "; ".join(broken))
    if not known and not cases:
        return None
    note = ("fenced",) if "```" in text else ()
    return _one([(call.name, call.arguments, note) for call in known], [(case, note) for case in cases])


def _mended(text: str) -> Reading | None:
    found = repairs(text)
    calls = [(one.tool, one.arguments, (one.how,)) for one in found if one.tool is not None]
    cases = [(one.value, (one.how,)) for one in found if one.tool is None and _is_case(one.value)]
    if calls or cases:
        return _one(calls, cases)
    named = [call.name for call in read_calls({"content": text})[0]]
    if _TRIES.search(text):
        unknown = next((f": there is no tool {name!r}" for name in named), "")
        return NotRead("malformed", f"this looks like a call or a case file and cannot be read{unknown}")
    return None


def _one(calls: Sequence[_Call], cases: Sequence[tuple[Json, tuple[str, ...]]]) -> Reading:
    """The one thing that was meant; several different ones are refused."""
    asked: dict[str, Asked] = {}
    for name, given, notes in calls:
        try:
            call, also = fit(name, given)
        except BadInput as error:
            return NotRead("malformed", error.what)
        # Equal calls are one, so a call that is repeated in its own turn is not ambiguous.
        asked.setdefault(canonical(call), Asked(call, (*notes, *also)))
    told: dict[str, Answered] = {}
    for case, notes in cases:
        told.setdefault(json.dumps(case, sort_keys=True, default=str), Answered(case, notes))
    if len(asked) + len(told) > 1:
        what = "a call and a case file" if asked and told else f"{len(asked) or len(told)} different ones"
        return NotRead("malformed", f"one turn is one call or the case file; this has {what}")
    return next(iter(asked.values())) if asked else next(iter(told.values()))


def _cases(text: str) -> list[Json]:
    """Objects in a text that are case files, the outermost of each."""
    found: list[Json] = []
    decoder = json.JSONDecoder(strict=False)
    place = 0
    while (at := text.find("{", place)) >= 0:
        try:
            value, place = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            place = at + 1
            continue
        inner = value.get("case_file", value) if isinstance(value, dict) else None
        if isinstance(inner, dict) and _is_case(inner):
            found.append(inner)
    return found


def _is_case(value: Json) -> bool:
    return isinstance(value.get("locations"), list)
