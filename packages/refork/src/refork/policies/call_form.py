"""How a model's chat template writes tool calls, and the grammars of turns that call tools.

The form is taken from the template itself: two made-up calls are rendered, and what stands around their names
and arguments is the form. So what a model says under it is what it was trained to say and what is read back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from refork.errors import BadInput, CannotDo
from refork.policies.chat import Codec
from refork.sampling.grammar import Grammar
from refork.sampling.guide import WHITESPACE, with_style
from refork.types import Json, Message

_ASK: Final[Message] = {"role": "user", "content": "a"}
_NAMES: Final = ("first_tool", "second_tool")
_ARGUMENTS: Final[tuple[Json, Json]] = ({"k": "v", "l": 1}, {"m": "w", "n": 2})
_SEPARATORS: Final = ((", ", ": "), (",", ":"), (",", ": "), (", ", ":"))
_HINT: Final = "tool_choice 'auto' or 'none'"


@final
@dataclass(frozen=True, slots=True)
class CallForm:
    """A call is ``before`` NAME ``between`` ARGUMENTS ``after``; several have ``joint`` between them.

    ``joint`` is None where a turn holds one call only. ``separators`` stand between the items of the
    arguments' JSON, and between key and value.
    """

    before: str
    between: str
    after: str
    joint: str | None
    separators: tuple[str, str] = (", ", ": ")

    def write(self, name: str, arguments: Json) -> str:
        """One call."""
        text = json.dumps(arguments, ensure_ascii=False, separators=self.separators)
        return f"{self._head(name)}{text}{self.after}"

    def _head(self, name: str) -> str:
        return f"{self.before}{json.dumps(name, ensure_ascii=False)[1:-1]}{self.between}"

    def read(self, text: str, names: Sequence[str]) -> list[tuple[str, str]]:
        """The whole calls of named tools that a text consists of: each name, and its arguments as written."""
        found, place, joint = [], 0, ""
        while text.startswith(joint, place):
            begin = place + len(joint)
            name = next((n for n in names if text.startswith(self._head(n), begin)), None)
            if name is None:
                break
            start = begin + len(self._head(name))
            try:
                # The arguments end where their JSON does: what closes a call may stand in a string of it.
                _, end = json.JSONDecoder().raw_decode(text, start)
            except (ValueError, RecursionError):
                break
            if not text.startswith(self.after, end):
                break
            found.append((name, text[start:end]))
            place = end + len(self.after)
            if self.joint is None:
                break
            joint = self.joint
        return found

    def rules(self, tools: Sequence[Json], *, many: bool) -> str:
        """Lark rules by which ``calls`` is one call of a tool, or with ``many`` one or more.

        Raises: BadInput as :func:`arguments_schema`.
        """
        if not tools:
            raise BadInput("there are no tools to call", where="grammar")
        item, key = self.separators
        style = {"item_separator": item, "key_separator": key, "whitespace_flexible": False}
        more = (
            f" ({_text(self.joint)} call)*"
            if many and self.joint
            else " call*"
            if many and self.joint == ""
            else ""
        )
        lines = [f"calls: call{more}", "call: " + " | ".join(f"call_{i}" for i in range(len(tools)))]
        for i, tool in enumerate(tools):
            schema = json.dumps(with_style(arguments_schema(tool), **style))
            head = _text(self._head(str(tool["name"])))
            lines += [
                f"call_{i}: {head} arguments_{i} {_text(self.after)}".rstrip(),
                f"arguments_{i}: %json {schema}",
            ]
        return "\n".join(lines)


def _text(text: str) -> str:
    """A text as Lark writes it."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def arguments_schema(tool: Json) -> Json:
    """The schema of a function's arguments: an object, of declared properties only unless it says otherwise.

    Raises:
        BadInput: its parameters are no schema of an object.
    """
    given = tool.get("parameters")
    if given is None:
        given = {"properties": {}}
    if not isinstance(given, dict) or given.get("type", "object") != "object":
        raise BadInput(f"the parameters of {tool.get('name')!r} are no JSON schema of an object"[:200])
    schema = {**given, "type": "object"}
    # These may declare further properties, which a closed object would then forbid.
    composed = {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"} & schema.keys()
    if "properties" in schema and not composed:
        schema.setdefault("additionalProperties", False)
    return schema


def turn_grammar(
    form: CallForm | None,
    tools: Sequence[Json] = (),
    *,
    answer: Json | None = None,
    many: bool = True,
) -> Grammar:
    """The grammar of a turn that calls ``tools``, or answers with JSON of a schema, or does either.

    Raises:
        BadInput: neither is asked for, or the parameters of a tool are no schema of an object.
    """
    if form is None or not tools:
        if answer is None:
            raise BadInput("a turn that neither calls nor answers has no grammar")
        return Grammar.json_schema(answer)
    calls = form.rules(tools, many=many)
    if answer is None:
        return Grammar.lark(f"start: calls\n{calls}")
    styled = json.dumps(with_style(answer, whitespace_pattern=WHITESPACE))
    return Grammar.lark(f"start: calls | answer\nanswer: %json {styled}\n{calls}")


def call_form(codec: Codec) -> CallForm:
    """The form in which a tokenizer's chat template writes calls.

    Raises:
        CannotDo: it shows none, or writes them so that their text does not say where they begin and end.
    """
    if not codec.has_template:
        raise CannotDo("this model has no chat template, so it cannot be made to call a tool", hint=_HINT)
    try:
        units = [_calls_text(codec, [place]) for place in (0, 1)]
    except BadInput as error:
        raise CannotDo(f"this model's template writes no calls: {error.what}", hint=_HINT) from error
    for separators in _SEPARATORS:
        whole = json.dumps(_ARGUMENTS[0], separators=separators)
        before, named, rest = units[0].partition(_NAMES[0])
        between, found, after = rest.partition(whole)
        if named and found:
            form = CallForm(before, between, after, None, separators)
            break
    else:
        raise CannotDo("this model's template writes calls in a form that no grammar here covers", hint=_HINT)
    # Special tokens are in no decoded text, so calls written in them could not be read back.
    special = codec.tokenizer.convert_ids_to_tokens(sorted(codec.special_ids))
    if form.write(_NAMES[1], _ARGUMENTS[1]) != units[1] or any(name and name in units[0] for name in special):
        raise CannotDo("this model's template writes calls in special tokens or by their number", hint=_HINT)
    return CallForm(before, between, after, _joint(codec, units), separators)


def _calls_text(codec: Codec, calls: Sequence[int]) -> str:
    """The text of a turn that makes some of the made-up calls, as the template writes it."""
    tools = [{"type": "function", "function": _tool(name)} for name in _NAMES]
    ask = {**_ASK, "tools": tools}
    made = [
        {
            "id": f"call0000{i}",
            "type": "function",
            "function": {"name": _NAMES[i], "arguments": _ARGUMENTS[i]},
        }
        for i in calls
    ]
    frame = codec.answer_frame(ask)
    text = codec.template_text(
        [ask, {"role": "assistant", "content": "", "tool_calls": made}], generate=False
    )
    if frame is None or not text.startswith(frame[0]) or not text.endswith(frame[2]):
        raise BadInput("its calls do not stand where its answers do")
    opening, lead, ending = frame
    # What a template puts before every answer (an empty thought, say) is no part of a call.
    return text[len(opening) : len(text) - len(ending)].removeprefix(lead)


def _tool(name: str) -> Json:
    return {"name": name, "description": "", "parameters": {"type": "object", "properties": {}}}


def _joint(codec: Codec, units: Sequence[str]) -> str | None:
    """What stands between two calls of a turn; None where one is all that a turn may make."""
    try:
        both = _calls_text(codec, [0, 1])
    except BadInput:
        return None
    joined = (
        both.startswith(units[0]) and both.endswith(units[1]) and len(both) >= len(units[0]) + len(units[1])
    )
    return both[len(units[0]) : len(both) - len(units[1])] if joined else None
