"""A sample of inspect_ai as conversations: attachments put back, pooled messages resolved, calls in one form.

The messages at a sample's end are one conversation. A model call whose answer is not among them (a subagent,
a context that was compacted or trimmed) is one of its own, with the input that it was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from ramify.core.errors import BadInput
from ramify.core.plain import content_hash
from ramify.core.policy.base import Cost
from ramify.core.tree.formats.conversation import message_of, tool_call
from ramify.core.types import Finish, Json, Message

_ATTACHED: Final = "attachment://"
_FINISH: Final[Mapping[str, Finish]] = {
    "stop": "stop", "tool_calls": "stop", "content_filter": "stop", "max_tokens": "length",
    "model_length": "length",
}  # fmt: skip
_KNOWN: Final = ("id", "role", "content", "tool_calls", "tool_call_id", "function", "error")


@final
@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation, for each assistant turn what its model call told, and the messages' ids.

    Ids stand apart: prompts that say the same are one node, whichever sample or epoch they begin.
    """

    messages: list[Message]
    told: list[Json]
    ids: list[Any]


@final
@dataclass(slots=True)
class _Call:
    """A model call: its input, what it answered, and what it told of itself."""

    given: list[Json]
    said: Json
    told: Json
    reached: bool = field(default=False)


def talks(sample: Json, where: str) -> Iterator[Talk]:
    """The conversations of a sample, that of its end first.

    Raises:
        BadInput: a message that is none, or a range beyond the pool.
    """
    attached = sample.get("attachments")
    body = _with_attachments(sample, attached) if isinstance(attached, Mapping) and attached else sample
    calls = _calls(body, where)
    by_name = {_name(call.said): call for call in calls}
    final = _listed(body.get("messages"), "messages", where)
    if final:
        yield _talk(final, by_name, where)
    # Longest first: what an earlier call was given is the beginning of what a later one was.
    for call in reversed(calls):
        if not call.reached:
            yield _talk([*call.given, call.said], by_name, where)


def _talk(raw: Sequence[Json], calls: Mapping[str, _Call], where: str) -> Talk:
    messages, told = [], []
    for number, one in enumerate(raw, start=1):
        message = _message(one, f"{where}, message {number}")
        messages.append(message)
        if message["role"] == "assistant":
            call = calls.get(_name(one))
            told.append({} if call is None else call.told)
            if call is not None:
                call.reached = True
    return Talk(messages, told, [one.get("id") for one in raw])


def _calls(body: Json, where: str) -> list[_Call]:
    data = body.get("events_data")
    pool = data.get("messages") if isinstance(data, Mapping) else body.get("message_pool")
    pooled = _listed(pool, "message pool", where)
    found = []
    for event in _listed(body.get("events"), "events", where):
        if event.get("event") != "model":
            continue
        output = event.get("output")
        if not isinstance(output, dict) or not (choices := output.get("choices")):
            continue
        choice = _listed(choices, "choices", where)[0]
        if isinstance(choice.get("message"), dict):
            given = [*_listed(event.get("input"), "input", where), *_ranged(event, pooled, where)]
            found.append(_Call(given, choice["message"], _told(event, output, choice)))
    return found


def _ranged(event: Json, pool: list[Json], where: str) -> list[Json]:
    """The pooled messages of a call: half-open ranges of the pool, or single places."""
    found: list[Json] = []
    for ref in event.get("input_refs") or []:
        first, last = (ref, ref + 1) if isinstance(ref, int) else ref
        if not (isinstance(first, int) and isinstance(last, int) and 0 <= first <= last <= len(pool)):
            raise BadInput(f"a call's input is {ref!r} of a pool of {len(pool)} messages", where=where)
        found += pool[first:last]
    return found


def _told(event: Json, output: Json, choice: Json) -> Json:
    """What a call says of its turn: model, costs, why it ended; the rest under ``extra``."""
    usage = output.get("usage") if isinstance(output.get("usage"), dict) else {}
    names = ("timestamp", "completed", "working_start", "working_time", "config", "role", "retries", "error")
    extra: Json = {name: event[name] for name in names if event.get(name) is not None}
    extra |= {"usage": usage} if usage else {}
    extra |= {"logprobs": choice["logprobs"]} if choice.get("logprobs") else {}
    seconds = event.get("working_time", output.get("time"))
    told: Json = {
        "cost": Cost(
            tokens_in=_count(usage, "input_tokens"),
            tokens_out=_count(usage, "output_tokens"),
            seconds=float(seconds) if isinstance(seconds, (int, float)) else None,
        ),
        "finish": _FINISH.get(str(choice.get("stop_reason"))),
        "extra": {"call": extra} if extra else {},
    }
    return told | ({"policy": str(event["model"])} if event.get("model") else {})


def _count(usage: Mapping[str, Any] | None, name: str) -> int | None:
    value = (usage or {}).get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else None


def _listed(raw: Any, what: str, where: str) -> list[Json]:
    if raw is None:
        return []
    if not isinstance(raw, list) or not all(isinstance(one, dict) for one in raw):
        raise BadInput(f"the {what} are not a list of objects", where=where)
    return raw


def _name(message: Json) -> str:
    """What tells a message from others: its id, in older logs its content."""
    known = message.get("id")
    return str(known) if known else content_hash([message.get("content"), message.get("tool_calls")])


def _message(raw: Json, where: str) -> Message:
    """A message in OpenAI's form; what else it says stands under ``extra``."""
    plain: Json = {"role": raw.get("role"), "content": raw.get("content")}
    reasons: list[str] = []
    if isinstance(raw.get("content"), list):
        plain["content"] = [
            part for one in raw["content"] if (part := _part(one, reasons, where)) is not None
        ]
        if all(part["type"] == "text" for part in plain["content"]):
            plain["content"] = "\n".join(part["text"] for part in plain["content"])
    if reasons:
        plain["reasoning_content"] = "\n".join(reasons)
    if raw.get("tool_calls"):
        plain["tool_calls"] = [_call(one, where) for one in _listed(raw["tool_calls"], "tool calls", where)]
    for ours, theirs in (("tool_call_id", "tool_call_id"), ("name", "function")):
        if raw.get(theirs) is not None:
            plain[ours] = raw[theirs]
    message = message_of(plain, where)
    extra = {key: value for key, value in raw.items() if key not in _KNOWN and value is not None}
    extra |= {"error": raw["error"]} if raw.get("error") else {}
    return message | ({"extra": extra} if extra else {})


def _part(part: Any, reasons: list[str], where: str) -> Json | None:
    """A part of a content; reasoning is taken aside."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise BadInput("a part of a content is neither text nor an object", where=where)
    if part.get("type") == "reasoning":
        reasons.append(str(part.get("summary") if part.get("redacted") else part.get("reasoning", "")))
        return None
    if part.get("type") == "text":
        return {"type": "text", "text": str(part.get("text", ""))}
    if part.get("type") == "image":
        return {"type": "image_url", "image_url": {"url": str(part.get("image", ""))}}
    return part


def _call(raw: Json, where: str) -> Json:
    if not isinstance(raw.get("function"), str):
        raise BadInput("a tool call has no function", where=where)
    call = tool_call(raw["function"], raw.get("arguments"), str(raw["id"]) if raw.get("id") else None)
    return call | ({"parse_error": raw["parse_error"]} if raw.get("parse_error") else {})


def _with_attachments(value: Any, attached: Mapping[str, Any]) -> Any:
    """A value with every reference replaced by what it stands for; an unknown one stays."""
    if isinstance(value, str):
        if not value.startswith(_ATTACHED):
            return value
        found = attached.get(value.removeprefix(_ATTACHED))
        return found if isinstance(found, str) else value
    if isinstance(value, list):
        return [_with_attachments(one, attached) for one in value]
    if isinstance(value, dict):
        return {key: _with_attachments(one, attached) for key, one in value.items() if key != "attachments"}
    return value
