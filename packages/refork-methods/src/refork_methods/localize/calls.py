"""One model turn read: a tool call, a case file, or why it is neither."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.tool_calls import ToolCall, read_calls
from refork.types import Finish, Json, Message
from refork_methods.localize.arguments import canonical, fit, tool_named
from refork_methods.localize.recovery import repairs, salvaged

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
    if broken and (known or cases) and "tag" in " ".join(broken) and not known:
        broken = []
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
