"""A sample of inspect_ai as conversations: attachments put back, pooled messages resolved, calls in one form.

The messages at a sample's end are one conversation. A model call whose answer is not among them (a subagent,
a context that was compacted or trimmed) is one of its own, with the input that it was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.conversation import ROLES, message_of, tool_call
from refork.plain import content_hash
from refork.policies.base import Cost, Sampling
from refork.policies.sent import REQUEST, TAKEN, kept_request
from refork.types import Finish, Json, Message

_ATTACHED: Final = "attachment://"
_FINISH: Final[Mapping[str, Finish]] = {
    "stop": "stop", "tool_calls": "stop", "content_filter": "stop", "max_tokens": "length",
    "model_length": "length",
}  # fmt: skip
#: Sampling settings as inspect_ai names them, and what else of its configuration the chat interface takes.
_SETTINGS: Final = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_tokens": "max_tokens",
    "stop_seqs": "stop",
}  # fmt: skip
_CONFIG: Final = {
    "temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "stop_seqs": "stop",
    "frequency_penalty": "frequency_penalty", "presence_penalty": "presence_penalty",
    "logit_bias": "logit_bias", "reasoning_effort": "reasoning_effort",
    "parallel_tool_calls": "parallel_tool_calls",
}  # fmt: skip
_KNOWN: Final = ("id", "role", "content", "tool_calls", "tool_call_id", "function", "error")


@final
@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation, for each assistant turn what its model call told, and the messages' ids.

    Ids stand apart: prompts that say the same are one node, whichever sample or epoch they begin.
    ``tools`` are the definitions that the model was offered, None where no call is on record. ``model`` is
    who answered.
    """

    messages: list[Message]
    told: list[Json]
    ids: list[Any]
    tools: list[Json] | None = None
    model: str | None = None


@final
@dataclass(slots=True)
class _Call:
    """A model call: its input, what it answered, and what it told of itself.

    ``sent`` is its input as the request had it, by the messages' names; ``tools`` what it was offered.
    ``failed`` says that there was no answer.
    """

    given: list[Json]
    said: Json
    told: Json
    tools: list[Json] = field(default_factory=list)
    sent: dict[str, Json] = field(default_factory=dict)
    failed: bool = False
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
        last = calls[-1] if calls else None
        if last is not None and last.failed and list(map(_name, last.given)) == list(map(_name, final)):
            # The run ended with a call that failed: that is the end of its conversation.
            final = [*final, last.said]
        yield _talk(final, by_name, where)
    # Longest first: what an earlier call was given is the beginning of what a later one was.
    for call in reversed(calls):
        if not call.reached:
            yield _talk([*call.given, call.said], by_name, where)


def _talk(raw: Sequence[Json], calls: Mapping[str, _Call], where: str) -> Talk:
    messages, told = [], []
    mine = [calls[name] for one in raw if (name := _name(one)) in calls]
    sent: dict[str, Json] = {}
    for call in mine:
        # What a later request says of a message is what the agent last sent of it.
        sent |= call.sent
    offered: list[Json] | None = None
    for number, one in enumerate(raw, start=1):
        message = _message(one, f"{where}, message {number}")
        if _name(one) in sent:
            message = _as_sent(message, sent[_name(one)])
        messages.append(message)
        if message["role"] == "assistant":
            found = calls.get(_name(one))
            told.append({} if found is None else _differing(found, offered))
            if found is not None:
                found.reached = True
                offered = found.tools if offered is None else offered
    model = next((call.told["policy"] for call in mine if "policy" in call.told), None)
    return Talk(messages, told, [one.get("id") for one in raw], offered, model)


def _differing(call: _Call, offered: list[Json] | None) -> Json:
    """What a call tells, its tools too where they are others than the first call's."""
    if offered is None or call.tools == offered:
        return call.told
    request = {**call.told["extra"].get(REQUEST, {}), "tools": call.tools}
    return {**call.told, "extra": {**call.told["extra"], REQUEST: request}}


def _as_sent(message: Message, sent: Json) -> Message:
    """A message as the request had it; what only the log says of it stands under ``extra``."""
    extra = dict(message.get("extra") or {})
    # The request is what the agent said again; what it left out (its thoughts, a tool's name) is the log's.
    extra |= {key: value for key, value in message.items() if key not in {*sent, "extra", "role"} and value}
    unknown = sorted(set(sent) - TAKEN)
    extra |= {"sent": unknown} if unknown else {}
    return {**sent, **({"extra": extra} if extra else {})}


def _calls(body: Json, where: str) -> list[_Call]:
    data = body.get("events_data")
    pool = data.get("messages") if isinstance(data, Mapping) else body.get("message_pool")
    pooled = _listed(pool, "message pool", where)
    asked = data.get("calls") if isinstance(data, Mapping) else None
    found = []
    for event in _listed(body.get("events"), "events", where):
        if event.get("event") != "model":
            continue
        output = event.get("output")
        output = output if isinstance(output, dict) else {}
        choices = _listed(output.get("choices"), "choices", where)
        failed = bool(event.get("error"))
        # A call that failed has an empty answer in newer logs, and none in older ones.
        empty: Json = {"message": {"role": "assistant", "content": "", "id": f"failed {event.get('uuid')}"}}
        choice = choices[0] if choices else (empty if failed else {})
        if isinstance(choice.get("message"), dict):
            given = [
                *_listed(event.get("input"), "input", where),
                *_ranged(event.get("input_refs"), pooled, where),
            ]
            call = _Call(given, choice["message"], _told(event, output, choice), failed=failed)
            request = _request(event, asked, where)
            call.tools = _tools(event, request)
            call.sent = _sent(given, request)
            kept = kept_request(request) if _is_chat(request) else _terms(event)
            if kept or request:
                call.told["extra"][REQUEST] = kept
            found.append(call)
    return found


def _request(event: Json, pool: Any, where: str) -> Json:
    """The request that a call sent, as its provider has it, with its messages; empty where there is none."""
    call = event.get("call")
    request = call.get("request") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(request, dict):
        return {}
    refs, key = call.get("call_refs"), call.get("call_key")
    if refs and isinstance(key, str) and isinstance(pool, list):
        return {**request, key: _ranged(refs, pool, where)}
    return request


def _is_chat(request: Json) -> bool:
    """Whether a request is of the chat interface that forks use, not of another provider's own."""
    listed, tools = request.get("messages"), request.get("tools") or []
    if not isinstance(listed, list) or not isinstance(tools, list):
        return False
    plain = all(isinstance(m, dict) and m.get("role") in (*ROLES, "developer") for m in listed)
    if not plain or not all(isinstance(tool, dict) and tool.get("type") == "function" for tool in tools):
        return False
    # Ids and sources are inspect_ai's own: its mock model logs messages in that form.
    calls = [call for m in listed for call in m.get("tool_calls") or []]
    return not any("id" in m or "source" in m for m in listed) and all(
        isinstance(call, dict) and isinstance(call.get("function"), dict) for call in calls
    )


def _tools(event: Json, request: Json) -> list[Json]:
    """The definitions that a call offered: as it sent them, else put into the chat interface's form."""
    if _is_chat(request) and request.get("tools"):
        return list(request["tools"])
    found: list[Json] = []
    for tool in event.get("tools") or []:
        if isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
            body = {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key)}
            found.append({"type": "function", "function": body})
    return found


def _sent(given: Sequence[Json], request: Json) -> dict[str, Json]:
    """The messages of a request by the names of those that they were made of; none where they do not fit."""
    listed = request.get("messages") if _is_chat(request) else None
    if not isinstance(listed, list) or [m.get("role") for m in listed] != [m.get("role") for m in given]:
        return {}
    return {_name(one): made for one, made in zip(given, listed, strict=True)}


def _terms(event: Json) -> Json:
    """How a call was to answer, where its request is not of the chat interface."""
    choice = event.get("tool_choice")
    if isinstance(choice, Mapping) and isinstance(choice.get("name"), str):
        choice = {"type": "function", "function": {"name": choice["name"]}}
    choice = "required" if choice == "any" else choice
    given = event.get("config")
    config = given if isinstance(given, dict) else {}
    found = {ours: config[theirs] for theirs, ours in _CONFIG.items() if config.get(theirs) is not None}
    return found | ({"tool_choice": choice} if choice and event.get("tools") else {})


def _settings(config: Any) -> Json | None:
    """The sampling settings of a call, None where it named none or one that is none of ours."""
    given = config if isinstance(config, Mapping) else {}
    named = {ours: given[theirs] for theirs, ours in _SETTINGS.items() if given.get(theirs) is not None}
    if isinstance(named.get("stop"), list):
        named["stop"] = tuple(named["stop"])
    try:
        return Sampling(**named).to_json() if named else None
    except (BadInput, TypeError):
        return None


def _ranged(refs: Any, pool: list[Json], where: str) -> list[Json]:
    """The pooled messages of a call: half-open ranges of the pool, or single places."""
    found: list[Json] = []
    for ref in refs or []:
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
    told["settings"] = _settings(event.get("config"))
    if event.get("error"):
        told |= {"error": str(event["error"]), "finish": "error"}
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
