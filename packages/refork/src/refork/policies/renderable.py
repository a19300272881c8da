"""Conversations that call tools, as a tokenizer can be shown them: its template's form, else a plain one.

A chat template shows tool definitions, calls and results in the form that its model was trained on, if at
all. What it does not show is written into texts that it does show (:data:`GENERIC` says how), and every
such step is named, for it is an approximation: the model never saw this form.

What a template shows is tried with made-up messages and looked for in what it writes. A template that
passes over a call without an error would otherwise lose it silently.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakKeyDictionary

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.policies.base import Rendered
from refork.types import IntArray, Json, Message

if TYPE_CHECKING:
    from refork.policies.base import Policy
    from refork.policies.chat import Codec

#: The plain form, for documentation and for whoever reads such a context.
GENERIC: Final = """\
tools:    # Tools ... <tools>\\n{one function as JSON, a line each}\\n</tools>, behind the system message
a call:   <tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>, after what the turn says
a result: <tool_response>\\n...\\n</tool_response>, said by the user"""

_TOOLS: Final = (
    "# Tools\n\nYou may call these functions:\n<tools>\n{tools}\n</tools>\n\n"
    'To call one, write <tool_call>\n{{"name": NAME, "arguments": {{...}}}}\n</tool_call>'
)
_TOOL: Final[Json] = {
    "type": "function",
    "function": {
        "name": "first_tool",
        "description": "d",
        "parameters": {"type": "object", "properties": {"k": {"type": "string", "description": "d"}}},
    },
}
_ASK: Final[Message] = {"role": "user", "content": "a"}
_RESULT: Final = "refork result"


@final
@dataclass(frozen=True, slots=True)
class RenderableMessages:
    """Messages that a tokenizer can be shown, and what of them is not in its model's own form."""

    messages: tuple[Message, ...]
    approximate: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class TurnTokens:
    """Token ids of a recorded assistant turn, without the end of the turn.

    ``text`` is what they spell without special tokens, ``offsets`` the end of each token in it (None where
    they do not spell it exactly). ``calls`` says who wrote the turn's calls: None where there are none,
    ``template`` the chat template's own form, ``generic`` the plain one.
    """

    tokens: IntArray
    text: str
    offsets: IntArray | None
    calls: str | None
    approximate: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class TemplateAbilities:
    """What a chat template was found to show."""

    tools: bool = False
    call: bool = False
    calls: bool = False
    result: bool = False
    images: bool = False


def codec_of(policy: Policy) -> Codec | None:
    """The codec of a policy that tokenises on this machine; None where a server or a script does."""
    from refork.policies.chat import Codec

    found = getattr(policy, "codec", None)
    return found if isinstance(found, Codec) else None


_KNOWN: Final[WeakKeyDictionary[Codec, TemplateAbilities]] = WeakKeyDictionary()


def abilities(codec: Codec) -> TemplateAbilities:
    """What a codec's chat template shows of tools; nothing where it has no template."""
    found = _KNOWN.get(codec)
    if found is None:
        found = _KNOWN[codec] = _tried(codec)
    return found


def _made(number: int) -> Json:
    # Mistral's templates want ids of nine letters and digits.
    name = ("first_tool", "second_tool")[number]
    return {
        "id": f"call0000{number}",
        "type": "function",
        "function": {"name": name, "arguments": {"k": f"v{number}"}},
    }


def _tried(codec: Codec) -> TemplateAbilities:
    if not codec.has_template:
        return TemplateAbilities()

    def shows(messages: Sequence[Message], *parts: str) -> bool:
        try:
            text = codec.template_text(messages, generate=False)
        except (BadInput, CannotDo):
            return False
        return all(part in text for part in parts)

    one: Message = {"role": "assistant", "content": "", "tool_calls": [_made(0)]}
    two: Message = {"role": "assistant", "content": "", "tool_calls": [_made(0), _made(1)]}
    result: Message = {
        "role": "tool",
        "content": _RESULT,
        "name": "first_tool",
        "tool_call_id": _made(0)["id"],
    }
    picture: Message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": _RESULT}]}
    call = shows([_ASK, one], "first_tool", "v0")
    answered = call and shows([_ASK, one, result], "first_tool", _RESULT)
    return TemplateAbilities(
        tools=shows([{**_ASK, "tools": [_TOOL]}], "first_tool"),
        # A call whose result cannot be shown would stand alone.
        call=answered,
        calls=answered and shows([_ASK, two], "first_tool", "second_tool", "v1"),
        result=answered,
        # A template that writes the list of parts as Python prints it shows 'type', and no picture.
        images=shows([picture], _RESULT) and not shows([picture], "'type'"),
    )


def renderable(codec: Codec | None, messages: Sequence[Message]) -> RenderableMessages:
    """Messages as a tokenizer can be shown them; without a codec the plain form, which needs no template.

    Raises:
        BadInput: the template refuses the messages in the plain form too.
    """
    able = TemplateAbilities() if codec is None else abilities(codec)
    made = _plain(messages, able, templated=codec is not None and codec.has_template)
    if codec is None or not codec.has_template or not made.messages:
        return made
    try:
        codec.template_text(made.messages, generate=True)
    except BadInput as error:
        flat = _alternating(_plain(messages, TemplateAbilities(), templated=True))
        if flat.messages == made.messages:
            raise
        try:
            codec.template_text(flat.messages, generate=True)
        except BadInput:
            raise error from None
        return flat
    return made


def _plain(messages: Sequence[Message], able: TemplateAbilities, *, templated: bool) -> RenderableMessages:
    """Messages with all that is beyond ``able`` in the plain form."""
    notes: list[str] = []
    who = "the chat template" if templated else "there is no chat template, which"

    def note(what: str) -> None:
        if what not in notes:
            notes.append(what)

    made: list[Message] = []
    generic = False
    for message in messages:
        one = dict(message)
        content = one.get("content")
        if isinstance(content, list):
            one["content"], lost = _content(content, able.images)
            if lost:
                note(f"{lost} stand as their names: {who} shows none")
        calls = one.get("tool_calls") or []
        if calls and one.get("role") == "assistant":
            generic = not (able.calls if len(calls) > 1 else able.call)
            if generic:
                note(f"tool calls in a generic form: {who} shows none, or not several in one turn")
                del one["tool_calls"]
                texts = [str(one.get("content") or ""), *(_call_text(call) for call in calls)]
                one["content"] = "\n".join(filter(None, texts))
        # A result is shown in the form that its call was shown in.
        elif one.get("role") == "tool" and (generic or not able.result):
            note(f"tool results in a generic form: {who} shows none")
            one = _result(one, made[-1] if made else None, made)
        made.append(one)
    tools = [tool for message in made for tool in message.get("tools") or ()]
    if tools and not able.tools:
        note(f"tool definitions as text in the system message: {who} shows none")
        made = _with_tool_text(made, tools)
    return RenderableMessages(tuple(made), tuple(notes))


def _content(parts: Sequence[Any], images: bool) -> tuple[Any, str | None]:
    """A content's parts as one text; pictures stay parts where a template shows them, else they are named."""
    kinds = {part.get("type") for part in parts if isinstance(part, dict)}
    if images and kinds - {"text"} and kinds <= {"text", "image", "image_url"}:
        return list(parts), None
    texts, other = [], False
    for part in parts:
        if isinstance(part, dict) and part.get("type", "text") in ("text", "input_text", "output_text"):
            texts.append(str(part.get("text", "")))
        else:
            other = True
            texts.append(f"[{part.get('type', 'part') if isinstance(part, dict) else part}]")
    return "".join(texts), "pictures and other parts" if other else None


def _call_text(call: Any) -> str:
    body = call.get("function", call) if isinstance(call, dict) else {"name": str(call)}
    arguments = body.get("arguments")
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    told: Json = {"name": body.get("name"), "arguments": {} if arguments is None else arguments}
    return f"<tool_call>\n{json.dumps(told, ensure_ascii=False)}\n</tool_call>"


def _result(message: Message, before: Message | None, made: list[Message]) -> Message:
    """A tool's result as the user says it; results that follow one another are one message."""
    text = f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"
    if before is not None and before.get("role") == "user" and before.get("results"):
        made.pop()
        text = f"{before['content']}\n{text}"
    rest = {"tools": before["tools"]} if before is not None and made and before.get("tools") else {}
    return {"role": "user", "content": text, "results": True, **rest}


def _with_tool_text(messages: Sequence[Message], tools: Sequence[Json]) -> list[Message]:
    lines = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    text = _TOOLS.format(tools=lines)
    made = [{key: value for key, value in message.items() if key != "tools"} for message in messages]
    if made and made[0].get("role") == "system":
        said = str(made[0].get("content") or "")
        made[0]["content"] = f"{said}\n\n{text}" if said else text
        return made
    return [{"role": "system", "content": text}, *made]


def _alternating(given: RenderableMessages) -> RenderableMessages:
    """User and assistant in turn, for templates that refuse anything else: neighbours joined, no system."""
    note = "messages joined so that user and assistant take turns: the chat template refuses them otherwise"
    roles = [
        {
            "role": "assistant" if m.get("role") == "assistant" else "user",
            "content": str(m.get("content") or ""),
        }
        for m in given.messages
    ]
    joined: list[Message] = [
        {"role": role, "content": "\n\n".join(filter(None, (m["content"] for m in run)))}
        for role, run in groupby(roles, lambda message: message["role"])
    ]
    if joined and joined[0]["role"] == "assistant":
        joined.insert(0, {"role": "user", "content": ""})
    return RenderableMessages(tuple(joined), (*given.approximate, note))


def render_delta(
    policy: Policy, history: Sequence[Message], tokens: IntArray, new: Sequence[Message]
) -> tuple[Rendered, tuple[str, ...]]:
    """As :meth:`Policy.render`, for conversations that call tools; with what of them is approximate.

    Raises:
        BadInput: the template refuses the messages in any form.
    """
    codec = codec_of(policy)
    if codec is None:
        # A server renders with a template that is not ours to ask.
        return policy.render(history, tokens, new), ()
    whole = renderable(codec, [*history, *new])
    before = renderable(codec, history).messages if history else ()
    # Messages that were joined or rewritten no longer part where the old ones ended.
    same = before == whole.messages[: len(before)]
    place = len(before) if same else max(len(whole.messages) - len(new), 0)
    # With tokens and no history a codec takes the context for bare text and renders every message behind it.
    if len(tokens) and not place:
        place = min(1, len(whole.messages) - 1)
    rendered = policy.render(list(whole.messages[:place]), tokens, list(whole.messages[place:]))
    return rendered, whole.approximate


def turn_tokens(policy: Policy, message: Message, tools: Sequence[Json] = ()) -> TurnTokens:
    """Token ids of an assistant turn that is known as a message only: as the model would have said it.

    Plain text is encoded. Calls are what the template writes for them, between where the turn opens and
    where it ends; how the model spaced their JSON is not on record.
    """
    codec = codec_of(policy)
    made = renderable(codec, [message])
    said = next((m for m in made.messages if m.get("role") == "assistant"), message)
    if codec is not None and said.get("tool_calls"):
        text = call_text(codec, said, tools)
        if text is not None:
            ids = codec.encode(text)
            spelled, ends = codec.pieces(ids)
            return TurnTokens(ids, spelled, ends, "template", made.approximate)
        note = "tool calls in a generic form: the chat template does not write them where answers stand"
        bare = _plain([message], TemplateAbilities(), templated=True).messages[-1]
        return _encoded(policy, str(bare.get("content") or ""), "generic", (*made.approximate, note))
    calls = "generic" if message.get("tool_calls") else None
    return _encoded(policy, str(said.get("content") or ""), calls, made.approximate)


def _encoded(policy: Policy, text: str, calls: str | None, notes: tuple[str, ...]) -> TurnTokens:
    ids = policy.encode(text)
    return TurnTokens(ids, text, ends_of(policy, ids, text), calls, notes)


def call_text(codec: Codec, message: Message, tools: Sequence[Json] = ()) -> str | None:
    """What a template writes for a turn, without how turns open and end; None where that cannot be told."""
    ask = {**_ASK, "tools": list(tools)} if tools and abilities(codec).tools else _ASK
    try:
        frame = codec.answer_frame(ask)
        text = codec.template_text([ask, message], generate=False)
    except (BadInput, CannotDo):
        return None
    if frame is None or not text.startswith(frame[0]):
        return None
    opening, lead, ending = frame
    body = text[len(opening) :]
    stripped = body.removesuffix(ending)
    if stripped == body:
        # Some templates end a turn that calls with another token than one that answers.
        stripped = _without_end(codec, body)
    # What a template puts before every answer (an empty thought, say) is no part of a turn without one.
    return stripped if message.get("reasoning_content") else stripped.removeprefix(lead)


def _without_end(codec: Codec, body: str) -> str:
    names = [str(n) for n in codec.tokenizer.convert_ids_to_tokens(sorted(codec.special_ids)) if n]
    bare = body.rstrip()
    last = next((name for name in names if bare.endswith(name)), None)
    return body if last is None else bare[: -len(last)]


_LONGEST_CHARACTER: Final = 4  # bytes in UTF-8, so at most as many tokens


def ends_of(policy: Policy, tokens: IntArray, text: str) -> IntArray | None:
    """The end of each token in its text (characters); None where decoding does not give the text back.

    A character whose bytes are split over tokens belongs to the token that completes it.
    """
    if policy.card.kind not in ("local", "scripted"):
        return None
    ends: list[int] = []
    at, begun = 0, 0
    for number in range(len(tokens)):
        piece = policy.decode(tokens[begun : number + 1])
        if text.startswith(piece, at):
            at, begun = at + len(piece), number + 1
        elif number - begun >= _LONGEST_CHARACTER:
            return None
        ends.append(at)
    return np.array(ends, dtype=np.int32) if at == len(text) else None
