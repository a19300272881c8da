"""The ways in which programs ask models over HTTP, read into one form; what is not understood stays raw.

A dialect tells a request from its path, makes a stream whole, and reads messages and the answer in the form
of OpenAI's chat, which the tree and its viewer know. Nothing here changes what goes over the wire.

Source: the providers' references of chat completions, completions, responses, messages, generateContent and
Ollama's chat and generate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, final

from refork.errors import BadChange, CannotDo
from refork.formats.conversation import count_of, mapping, tool_call
from refork.types import Json, Message

Name: TypeAlias = Literal["chat", "completions", "responses", "messages", "gemini", "ollama", "other"]

#: How a path ends, by dialect; the first that fits counts.
_ENDS: Final[tuple[tuple[str, Name], ...]] = (
    (r"/chat/completions", "chat"),
    (r"/completions", "completions"),
    (r"/responses", "responses"),
    (r"/messages", "messages"),
    (r":(?:stream)?[gG]enerateContent", "gemini"),
    (r"/api/(?:chat|generate)", "ollama"),
)
#: What a request may hold that says nothing to the model: names of users and of caches, marks for bills.
_UNHEARD: Final = frozenset({
    "user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "store",
    "stream_options", "service_tier", "keep_alive", "labels", "client_metadata",
})  # fmt: skip
#: The same of the parts of a conversation: turns of a program, which no model reads.
_UNHEARD_INSIDE: Final = frozenset({"internal_chat_message_metadata_passthrough"})
#: What command lines write into results of their shells that is another each time: ids, seconds, processes.
_MEASURED: Final = re.compile(
    r"(?<=^Chunk ID: )[0-9a-f]+(?=\n)|(?<=^Wall time: )[\d.]+(?= seconds$)|(?<=^Process Group PGID: )\d+$",
    re.M,
)
#: What a tool's result is called, in the dialects that name it by its type.
_RESULTS: Final = frozenset({
    "tool_result", "function_call_output", "custom_tool_call_output", "local_shell_call_output",
    "shell_call_output",
})  # fmt: skip
#: Fields under which programs put a tool call's id; each id counts by when it was first seen.
_IDS: Final = frozenset({"tool_call_id", "tool_use_id", "call_id"})
_FINISH: Final = {
    "stop": "stop", "end_turn": "stop", "stop_sequence": "stop", "STOP": "stop", "completed": "stop",
    "tool_calls": "stop", "tool_use": "stop", "function_call": "stop", "pause_turn": "stop",
    "length": "length", "max_tokens": "length", "MAX_TOKENS": "length", "incomplete": "length",
    "max_output_tokens": "length", "model_context_window_exceeded": "length",
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request as a model hears it. ``messages`` None: it is no conversation, or none that we can read.

    ``after``: the answer's id from which it goes on; the server holds what was said up to there.
    """

    dialect: Name
    model: str = ""
    messages: tuple[Message, ...] | None = None
    tools: tuple[Json, ...] = ()
    settings: Json = field(default_factory=dict)
    after: str = ""


@final
@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """An answer. ``message`` None: none could be read. ``finish`` None: it did not say why it ended."""

    text: str = ""
    message: Message | None = None
    finish: Literal["stop", "length"] | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    id: str = ""


def dialect_of(path: str) -> Name:
    """The dialect that a path belongs to; ``other`` for all that is no request for text."""
    return next((name for end, name in _ENDS if re.search(end + r"/?$", path)), "other")


def read_request(path: str, body: Any) -> ModelRequest:
    """What a request's JSON says; with what cannot be read left out."""
    name = dialect_of(path)
    if not isinstance(body, Mapping):
        return ModelRequest(name)
    model = body.get("model")
    if name == "gemini" and (found := re.search(r"models/([^/:]+):", path)):
        model = found[1]
    try:
        messages, tools = _REQUESTS[name](body)
    except (AttributeError, KeyError, TypeError, ValueError):
        # A form that we do not know is a form that somebody's server knows: it is recorded as it came.
        messages, tools = None, []
    apart = {"messages", "input", "contents", "prompt", "system", "instructions", "tools", "model", "stream"}
    settings = {key: value for key, value in body.items() if key not in apart | _UNHEARD}
    return ModelRequest(
        name,
        model if isinstance(model, str) else "",
        None if messages is None else tuple(messages),
        tuple(tools),
        settings,
        str(body.get("previous_response_id") or "") if name == "responses" else "",
    )


def read_answer(name: Name, kind: str, body: bytes) -> ModelAnswer:
    """What an answer of a content type says; of a stream, what it says when it is whole."""
    try:
        if "event-stream" in kind:
            whole = _WHOLE[name](_events(body))
        elif "ndjson" in kind or (name == "ollama" and body.count(b"\n") > 1):
            whole = _whole_ollama([json.loads(line) for line in body.splitlines() if line.strip()])
        else:
            whole = json.loads(body)
            # Gemini's stream without server-sent events is one list.
            if name == "gemini" and isinstance(whole, list):
                whole = _whole_gemini(whole)
        return _ANSWERS[name](whole)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        return ModelAnswer()


def canonical(path: str, body: Any) -> Any:
    """A request's JSON without what the model does not hear, and with ids of calls by their order.

    Two requests of one canonical form ask for the same; it is what replay compares.
    """
    seen: dict[str, str] = {}
    name = dialect_of(path)
    # What a conversation is made of has names there, and programs make up those of their own messages.
    items = body.get("input") if name == "responses" and isinstance(body, Mapping) else None
    own = {id(item) for item in items} if isinstance(items, list) else set()

    def named(value: Any) -> Any:
        return seen.setdefault(value, f"call {len(seen)}") if isinstance(value, str) and value else value

    def heard(value: Any, top: bool = False, result: bool = False) -> Any:
        if isinstance(value, str):
            return _MEASURED.sub("_", value) if result else value
        if isinstance(value, Mapping):
            # In a tool's schema "type" may be the name of a parameter, with a schema below it.
            kind = value.get("type") if isinstance(value.get("type"), str) else None
            result = result or value.get("role") == "tool" or kind in _RESULTS
            # An id of its own is a call's only where a call stands beside it.
            call = id(value) in own or kind in ("function", "tool_use", "function_call")
            call = call or (name == "gemini" and "name" in value and ("args" in value or "response" in value))
            return {
                key: named(one)
                if key in _IDS or (key == "id" and call)
                else heard(one, result=result or key == "functionResponse")
                for key, one in value.items()
                if key not in (_UNHEARD if top else _UNHEARD_INSIDE)
            }
        return [heard(one, result=result) for one in value] if isinstance(value, list) else value

    return heard(body, top=name != "other")


# -- streams --------------------------------------------------------------------------------------


def _events(body: bytes) -> list[Any]:
    """The data of server-sent events that are JSON."""
    found = []
    for block in re.split(rb"\r?\n\r?\n", body):
        data = [line[5:].strip() for line in block.splitlines() if line.startswith(b"data:")]
        joined = b"\n".join(data)
        if joined and joined != b"[DONE]":
            found.append(json.loads(joined))
    return found


def _whole_chat(events: Iterable[Any]) -> Json:
    """A chat completion of its chunks; the first choice alone is followed."""
    whole: Json = {"usage": None, "finish": None, "text": "", "reasoning": "", "refusal": ""}
    calls: dict[int, Json] = {}
    for event in events:
        whole["usage"] = event.get("usage") or whole["usage"]
        for choice in event.get("choices") or []:
            if choice.get("index", 0):
                continue
            delta = choice.get("delta") or {}
            whole["text"] += delta.get("content") or choice.get("text") or ""
            whole["reasoning"] += delta.get("reasoning_content") or delta.get("reasoning") or ""
            whole["refusal"] += delta.get("refusal") or ""
            whole["finish"] = choice.get("finish_reason") or whole["finish"]
            for part in delta.get("tool_calls") or []:
                one = calls.setdefault(
                    part.get("index", len(calls)), {"name": "", "arguments": "", "id": None}
                )
                one["id"] = part.get("id") or one["id"]
                told = part.get("function") or {}
                one["name"] += told.get("name") or ""
                one["arguments"] += told.get("arguments") or ""
    message: Json = {"role": "assistant", "content": whole["text"] or whole["refusal"]}
    if whole["reasoning"]:
        message["reasoning_content"] = whole["reasoning"]
    if calls:
        message["tool_calls"] = [
            tool_call(c["name"], c["arguments"], c["id"]) for _, c in sorted(calls.items())
        ]
    choice = {"message": message, "text": whole["text"], "finish_reason": whole["finish"]}
    return {"choices": [choice], "usage": whole["usage"]}


def _whole_responses(events: Iterable[Any]) -> Json:
    """A response of its events: the last one that holds it, else its items."""
    items: list[Any] = []
    for event in events:
        if isinstance(event.get("response"), Mapping) and event.get("type") in (
            "response.completed",
            "response.incomplete",
            "response.failed",
        ):
            return dict(event["response"])
        if event.get("type") == "response.output_item.done":
            items.append(event["item"])
    return {"output": items}


def _whole_messages(events: Iterable[Any]) -> Json:
    """A message of Anthropic's events."""
    whole: Json = {"content": [], "usage": {}}
    blocks: dict[int, Json] = {}
    for event in events:
        match event.get("type"):
            case "message_start":
                whole |= event["message"]
            case "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "json": ""}
            case "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"]
                for name in ("text", "thinking", "signature"):
                    if name in delta:
                        block[name] = (block.get(name) or "") + delta[name]
                block["json"] += delta.get("partial_json") or ""
            case "message_delta":
                whole |= event.get("delta") or {}
                whole["usage"] = {**whole.get("usage", {}), **(event.get("usage") or {})}
    for _, block in sorted(blocks.items()):
        text = block.pop("json")
        if text:
            block["input"] = json.loads(text)
        whole["content"] = [*(whole.get("content") or []), block]
    return whole


def _whole_gemini(chunks: Sequence[Any]) -> Json:
    """A Gemini response of its chunks."""
    parts: list[Any] = []
    whole: Json = {}
    finish = None
    for chunk in chunks:
        whole |= chunk
        for candidate in (chunk.get("candidates") or [])[:1]:
            parts += (candidate.get("content") or {}).get("parts") or []
            finish = candidate.get("finishReason") or finish
    whole["candidates"] = [{"content": {"parts": parts}, "finishReason": finish}]
    return whole


def _whole_ollama(lines: Sequence[Any]) -> Json:
    """An Ollama answer of its lines."""
    whole: Json = {}
    message: Json = {"role": "assistant", "content": ""}
    text = ""
    for line in lines:
        whole |= line
        text += line.get("response") or ""
        part = line.get("message") or {}
        message["content"] += part.get("content") or ""
        if part.get("tool_calls"):
            message["tool_calls"] = [*message.get("tool_calls", []), *part["tool_calls"]]
    return {**whole, "message": message, "response": text}


# -- requests -------------------------------------------------------------------------------------


def _text(content: Any) -> str:
    """The text of a content that is text, or parts of which some are."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or [] if isinstance(part, Mapping))


def _request_chat(body: Mapping[str, Any]) -> tuple[list[Message], list[Json]]:
    return [dict(message) for message in body["messages"]], list(body.get("tools") or [])


def _request_completions(body: Mapping[str, Any]) -> tuple[list[Message] | None, list[Json]]:
    prompt = body["prompt"]
    return ([{"role": "user", "content": prompt}] if isinstance(prompt, str) else None), []


def _request_responses(body: Mapping[str, Any]) -> tuple[list[Message] | None, list[Json]]:
    if body.get("conversation"):
        return None, []  # the server holds what came before
    messages: list[Message] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    given = body.get("input") or []
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        kind = item.get("type", "message")
        if kind == "message":
            role = {"developer": "system"}.get(item["role"], item["role"])
            messages.append({"role": role, "content": _text(item.get("content"))})
        elif kind == "function_call":
            call = tool_call(item["name"], item.get("arguments"), item.get("call_id"))
            if messages and messages[-1].get("tool_calls"):
                messages[-1]["tool_calls"].append(call)
            else:
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif kind.endswith("_output"):
            output = item.get("output")
            told = output if isinstance(output, str) else _text(output) or json.dumps(output)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": told})
        elif kind == "reasoning":
            continue
        else:
            messages.append({"role": "user", "content": json.dumps(item, ensure_ascii=False)})
    return messages, list(body.get("tools") or [])


def _request_messages(body: Mapping[str, Any]) -> tuple[list[Message], list[Json]]:
    messages: list[Message] = []
    if body.get("system"):
        messages.append({"role": "system", "content": _text(body["system"])})
    for message in body["messages"]:
        messages += _blocks(message["role"], message["content"])
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool.get("description", ""),
                "parameters": tool.get("input_schema", {}),
            },
        }
        for tool in body.get("tools") or []
    ]
    return messages, tools


def _blocks(role: str, content: Any) -> list[Message]:
    """One of Anthropic's messages: its results of tools are messages of their own, as OpenAI has them."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    found: list[Message] = []
    own: Message = {"role": role, "content": ""}
    pictures: list[Json] = []
    for block in content:
        kind = block["type"]
        if kind == "text":
            own["content"] += block["text"]
        elif kind == "thinking":
            own["reasoning_content"] = own.get("reasoning_content", "") + block.get("thinking", "")
        elif kind in ("tool_use", "server_tool_use"):
            own.setdefault("tool_calls", []).append(tool_call(block["name"], block["input"], block.get("id")))
        elif kind == "tool_result":
            told = _text(block.get("content"))
            found.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": told})
        else:
            pictures.append(dict(block))
    if pictures:
        own["content"] = [*([{"type": "text", "text": own["content"]}] if own["content"] else []), *pictures]
    if own["content"] or own.get("tool_calls") or own.get("reasoning_content") or not found:
        found.append(own)
    return found


def _request_gemini(body: Mapping[str, Any]) -> tuple[list[Message], list[Json]]:
    messages: list[Message] = []
    system = body.get("systemInstruction") or body.get("system_instruction")
    if system:
        messages.append({"role": "system", "content": _text(system.get("parts"))})
    for content in body["contents"]:
        messages += _parts({"model": "assistant"}.get(content.get("role"), "user"), content["parts"])
    tools = []
    for tool in body.get("tools") or []:
        for one in tool.get("functionDeclarations") or tool.get("function_declarations") or []:
            tools.append({"type": "function", "function": dict(one)})
    return messages, tools


def _parts(role: str, parts: Sequence[Mapping[str, Any]]) -> list[Message]:
    """One of Gemini's contents; its calls have no ids, or have them since lately."""
    found: list[Message] = []
    own: Message = {"role": role, "content": ""}
    for part in parts:
        call = part.get("functionCall") or part.get("function_call")
        result = part.get("functionResponse") or part.get("function_response")
        if call:
            own.setdefault("tool_calls", []).append(tool_call(call["name"], call.get("args"), call.get("id")))
        elif result:
            told = json.dumps(result.get("response"), ensure_ascii=False)
            name = result.get("id") or result.get("name")
            found.append({"role": "tool", "tool_call_id": name, "content": told})
        elif part.get("thought"):
            own["reasoning_content"] = own.get("reasoning_content", "") + (part.get("text") or "")
        else:
            own["content"] += part.get("text") or ""
    if own["content"] or own.get("tool_calls") or own.get("reasoning_content") or not found:
        found.append(own)
    return found


def _request_ollama(body: Mapping[str, Any]) -> tuple[list[Message], list[Json]]:
    if "messages" in body:
        messages, tools = _request_chat(body)
        return [_calls_as_text(message) for message in messages], tools
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    return [*system, {"role": "user", "content": body["prompt"]}], []


def _calls_as_text(message: Message) -> Message:
    """Ollama's calls have no ids, and arguments that are objects."""
    calls = [call["function"] for call in message.get("tool_calls") or []]
    made = [tool_call(call["name"], call.get("arguments")) for call in calls]
    return {**message, "tool_calls": made} if made else message


# -- answers --------------------------------------------------------------------------------------


def _message(text: str, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **{key: value for key, value in more.items() if value}}


def _finish(raw: Any) -> Literal["stop", "length"] | None:
    known: Any = _FINISH.get(raw) if isinstance(raw, str) else None
    return known  # type: ignore[no-any-return]


def _answer_chat(whole: Json) -> ModelAnswer:
    choice = whole["choices"][0]
    message = dict(choice["message"])
    message["role"] = "assistant"
    text, usage = _text(message.get("content")), mapping(whole.get("usage"))
    return ModelAnswer(
        text, message, _finish(choice.get("finish_reason")), count_of(usage, "prompt_tokens"),
        count_of(usage, "completion_tokens"),
    )  # fmt: skip


def _answer_completions(whole: Json) -> ModelAnswer:
    choice, usage = whole["choices"][0], mapping(whole.get("usage"))
    text = str(choice.get("text") or "")
    return ModelAnswer(
        text, _message(text), _finish(choice.get("finish_reason")), count_of(usage, "prompt_tokens"),
        count_of(usage, "completion_tokens"),
    )  # fmt: skip


def _answer_responses(whole: Json) -> ModelAnswer:
    text, thought, calls = "", "", []
    for item in whole["output"]:
        if item["type"] == "message":
            text += _text(item.get("content"))
        elif item["type"] == "function_call":
            calls.append(tool_call(item["name"], item.get("arguments"), item.get("call_id")))
        elif item["type"] == "reasoning":
            thought += _text(item.get("summary"))
    usage = mapping(whole.get("usage"))
    return ModelAnswer(
        text, _message(text, tool_calls=calls, reasoning_content=thought), _finish(whole.get("status")),
        count_of(usage, "input_tokens"), count_of(usage, "output_tokens"), str(whole.get("id") or ""),
    )  # fmt: skip


def _answer_messages(whole: Json) -> ModelAnswer:
    (message,) = _blocks("assistant", whole["content"])
    usage = mapping(whole.get("usage"))
    return ModelAnswer(
        _text(message["content"]), message, _finish(whole.get("stop_reason")),
        count_of(usage, "input_tokens"), count_of(usage, "output_tokens"),
    )  # fmt: skip


def _answer_gemini(whole: Json) -> ModelAnswer:
    candidate = whole["candidates"][0]
    (message,) = _parts("assistant", (candidate.get("content") or {}).get("parts") or [])
    usage = mapping(whole.get("usageMetadata"))
    return ModelAnswer(
        _text(message["content"]), message, _finish(candidate.get("finishReason")),
        count_of(usage, "promptTokenCount"), count_of(usage, "candidatesTokenCount"),
    )  # fmt: skip


def _answer_ollama(whole: Json) -> ModelAnswer:
    message = dict(whole.get("message") or {"role": "assistant", "content": whole["response"]})
    message["content"] = message.get("content") or whole.get("response") or ""
    return ModelAnswer(
        _text(message["content"]), _calls_as_text(message), _finish(whole.get("done_reason")),
        count_of(whole, "prompt_eval_count"), count_of(whole, "eval_count"),
    )  # fmt: skip


def _request_other(body: Mapping[str, Any]) -> tuple[None, list[Json]]:
    return None, []


def _answer_other(whole: Json) -> ModelAnswer:
    return ModelAnswer()


_REQUESTS: Final[Mapping[Name, Callable[[Mapping[str, Any]], tuple[list[Message] | None, list[Json]]]]] = {
    "chat": _request_chat, "completions": _request_completions, "responses": _request_responses,
    "messages": _request_messages, "gemini": _request_gemini, "ollama": _request_ollama,
    "other": _request_other,
}  # fmt: skip
_WHOLE: Final[Mapping[Name, Callable[[list[Any]], Json]]] = {
    "chat": _whole_chat, "completions": _whole_chat, "responses": _whole_responses,
    "messages": _whole_messages, "gemini": _whole_gemini, "ollama": _whole_ollama,
    "other": lambda events: {"events": events},
}  # fmt: skip
_ANSWERS: Final[Mapping[Name, Callable[[Json], ModelAnswer]]] = {
    "chat": _answer_chat, "completions": _answer_completions, "responses": _answer_responses,
    "messages": _answer_messages, "gemini": _answer_gemini, "ollama": _answer_ollama,
    "other": _answer_other,
}  # fmt: skip


# -- another answer -------------------------------------------------------------------------------


def answer_with(name: Name, kind: str, body: bytes, text: str) -> tuple[bytes, ...]:
    """An answer like a recorded one, of the same content type, that says ``text`` and calls no tool.

    Raises:
        CannotDo: the recorded answer is of a form that we cannot write.
    """
    streamed = "event-stream" in kind or "ndjson" in kind or (name == "ollama" and body.count(b"\n") > 1)
    try:
        if streamed:
            whole = _ended(name, body)
        else:
            whole = json.loads(body)
            whole = whole[-1] if name == "gemini" and isinstance(whole, list) else whole
        made = _WRITTEN[name](dict(whole), text)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CannotDo(
            f"an answer of {name} cannot be replaced: {error!r}",
            hint="change what is asked (text:OLD=>NEW), or draw it again (again)",
        ) from error
    if not streamed:
        return (json.dumps(made).encode(),)
    if name == "ollama":
        lines = ({**made, "done": False}, {**made, **_said_nothing(made)})
        return tuple(json.dumps(line).encode() + b"\n" for line in lines)
    events = _STREAMED[name](made, text)
    named = name in ("messages", "responses")
    pieces = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events
    ]
    return tuple(piece.encode() for piece in [*pieces, *(["data: [DONE]\n\n"] if name in _DONE else [])])


def answer_edited(kind: str, body: bytes, old: str, new: str) -> tuple[bytes, ...]:
    """A recorded answer with ``new`` for ``old`` in what was said and in arguments of calls; all else stays.

    In a stream a text comes in pieces. The changed one goes out whole with the first piece, and the others
    are empty.

    Raises:
        BadChange: ``old`` does not stand there.
        CannotDo: the recorded answer is no JSON.
    """
    lines, parts = _parsed(kind, body)
    texts: dict[tuple[object, ...], list[tuple[Any, Any]]] = {}
    for part in parts.values():
        for key, holder, name in _spoken(part, (part.get("type") if isinstance(part, dict) else None,)):
            texts.setdefault(key, []).append((holder, name))
    changed = False
    for places in texts.values():
        whole = "".join(holder[name] for holder, name in places)
        if old in whole:
            changed = True
            written = [whole.replace(old, new), *[""] * (len(places) - 1)]
            for (holder, name), text in zip(places, written, strict=True):
                holder[name] = text
    if not changed:
        raise BadChange(
            "part changes nothing in this answer",
            where=repr(old),
            hint="refork agent show --json has its text",
        )
    streamed = "event-stream" in kind
    for at, part in parts.items():
        lines[at] = ("data: " if streamed else "") + json.dumps(part)
    if streamed:
        # An event ends with an empty line, and goes out by itself as it came.
        return tuple(f"{event}\n\n".encode() for event in "\n".join(lines).split("\n\n") if event.strip())
    return tuple(f"{line}\n".encode() for line in lines) if len(lines) > 1 else (lines[0].encode(),)


#: Dialects in which a request can hold the beginning of its answer.
BEGUN: Final = frozenset({"chat", "completions", "messages"})


def answer_pieces(name: Name, kind: str, body: bytes) -> list[str]:
    """The text of an answer in pieces at whose ends it can be cut.

    Its tokens, where log-probs came with them; else words and signs, each with the space before it.
    """
    text = read_answer(name, kind, body).text
    told: list[str] = []
    if name == "chat":
        with suppress(CannotDo, AttributeError, KeyError, IndexError, TypeError):
            for part in _parsed(kind, body)[1].values():
                for choice in (part.get("choices") or [])[:1]:
                    given = (choice.get("logprobs") or {}).get("content") or []
                    told += [token["token"] for token in given]
    return told if told and "".join(told) == text else re.findall(r"\s*\w+|\s*[^\w\s]|\s+$", text)


def request_begun(name: Name, body: Json, text: str) -> Json:
    """A request whose answer begins with a text; the server answers what comes behind it.

    Of chat completions this is a form of vLLM and SGLang, which ours has, too.
    """
    if name == "completions":
        return {**body, "prompt": body["prompt"] + text}
    asked = {**body, "messages": [*body["messages"], {"role": "assistant", "content": text}]}
    going = {"continue_final_message": True, "add_generation_prompt": False}
    return asked | going if name == "chat" else asked


def answer_begun(name: Name, kind: str, body: bytes, text: str) -> tuple[bytes, ...]:
    """An answer with a text before what it says; calls of tools, and all else, stay.

    Raises:
        CannotDo: there is no place for it.
    """
    lines, parts = _parsed(kind, body)
    begun: set[object] = set()
    for at, part in parts.items():
        for which, holder, key in _openings(name, part):
            if which not in begun:
                begun.add(which)
                holder[key] = text + (holder.get(key) or "")
                lines[at] = ("data: " if "event-stream" in kind else "") + json.dumps(part)
    if not begun:
        raise CannotDo(f"an answer of {name} has no place for its beginning", where=text[-80:])
    if "event-stream" in kind:
        return tuple(f"{event}\n\n".encode() for event in "\n".join(lines).split("\n\n") if event.strip())
    return ("\n".join(lines).encode(),)


def _openings(name: Name, part: Any) -> Iterator[tuple[object, Json, str]]:
    """Where the texts of an answer, or of one event of it, begin: what tells them apart, and their holder."""
    if name == "messages":
        for block in part.get("content") or []:
            if block.get("type") == "text":
                yield 0, block, "text"
        if (part.get("delta") or {}).get("type") == "text_delta":
            yield 0, part["delta"], "text"
        return
    for choice in part.get("choices") or []:
        if name == "completions":
            yield choice.get("index", 0), choice, "text"
        elif isinstance(said := choice.get("message", choice.get("delta")), dict):
            yield choice.get("index", 0), said, "content"


def _parsed(kind: str, body: bytes) -> tuple[list[str], dict[int, Any]]:
    """The lines of an answer, and the JSON of those that have some; a whole answer is one line."""
    try:
        lines = body.decode().replace("\r\n", "\n").split("\n")
        if "event-stream" in kind:
            told = [(at, line[5:].strip()) for at, line in enumerate(lines) if line.startswith("data:")]
            return lines, {at: json.loads(text) for at, text in told if text != "[DONE]"}
        try:
            return [""], {0: json.loads(body)}
        except ValueError:
            lines = [line for line in lines if line.strip()]
            return lines, {at: json.loads(line) for at, line in enumerate(lines)}
    except ValueError as error:
        raise CannotDo(
            f"this answer cannot be changed: {error}", hint="draw it again (again), or change what is asked"
        ) from error


#: Fields that hold what a model said, and what tells texts of one event's kind apart.
_SPOKEN: Final = frozenset({
    "content", "text", "thinking", "reasoning_content", "reasoning", "refusal", "response", "delta",
    "arguments", "partial_json",
})  # fmt: skip
_APART: Final = ("index", "output_index", "content_index", "item_id")
#: Fields below which every text is an argument of a call.
_GIVEN: Final = frozenset({"input", "args", "arguments"})


def _spoken(
    value: Any, key: tuple[object, ...], given: bool = False
) -> Iterator[tuple[tuple[object, ...], Any, Any]]:
    """Every text that was said in an event: what tells it apart, and the object and name that hold it."""
    if isinstance(value, dict):
        key = (*key, *((name, value[name]) for name in _APART if isinstance(value.get(name), (int, str))))
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in list(items):
        if isinstance(one, str):
            if given or name in _SPOKEN:
                yield (*key, name), value, name
        else:
            yield from _spoken(one, (*key, name), given or name in _GIVEN)


#: Dialects whose streams end with a line of their own.
_DONE: Final = frozenset({"chat", "completions"})


def _said_nothing(whole: Json) -> Json:
    return {"message": {"role": "assistant", "content": ""}} if "message" in whole else {"response": ""}


def _ended(name: Name, body: bytes) -> Json:
    """A recorded stream as the whole answer it was, with the fields that do not come piece by piece."""
    if name == "ollama":
        return _whole_ollama([json.loads(line) for line in body.splitlines() if line.strip()])
    events = _events(body)
    if name in _DONE:
        first = {key: value for key, value in events[0].items() if key != "choices"}
        return first | {"choices": [{"index": 0}]}
    return _WHOLE[name](events)


def _write_chat(whole: Json, text: str) -> Json:
    choice = {**whole["choices"][0], "message": _message(text), "finish_reason": "stop"}
    return {**whole, "choices": [choice]}


def _write_completions(whole: Json, text: str) -> Json:
    return {**whole, "choices": [{**whole["choices"][0], "text": text, "finish_reason": "stop"}]}


def _write_responses(whole: Json, text: str) -> Json:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": [part]}
    return {**whole, "output": [item], "status": "completed"}


def _write_messages(whole: Json, text: str) -> Json:
    return {**whole, "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}


def _write_gemini(whole: Json, text: str) -> Json:
    content = {"role": "model", "parts": [{"text": text}]}
    return {**whole, "candidates": [{**whole["candidates"][0], "content": content, "finishReason": "STOP"}]}


def _write_ollama(whole: Json, text: str) -> Json:
    rest = {key: value for key, value in whole.items() if key not in ("message", "response")}
    # A stream made whole has both; the chat interface leaves the text of generate empty.
    return {**rest, "response": text} if whole.get("response") else {**rest, "message": _message(text)}


def _stream_chat(whole: Json, text: str) -> list[Json]:
    base = {**whole, "object": "chat.completion.chunk"}
    deltas: list[Json] = [{"role": "assistant", "content": text}, {}]
    return [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}]}
        for delta in deltas
    ]


def _stream_responses(whole: Json, text: str) -> list[Json]:
    (item,) = whole["output"]
    at = {"output_index": 0}
    inside = {"item_id": item["id"], "content_index": 0, **at}
    empty = {"type": "output_text", "text": "", "annotations": []}
    events: list[Json] = [
        {"type": "response.created", "response": {**whole, "output": [], "status": "in_progress"}},
        {
            "type": "response.output_item.added",
            "item": {**item, "content": [], "status": "in_progress"},
            **at,
        },
        {"type": "response.content_part.added", "part": empty, **inside},
        {"type": "response.output_text.delta", "delta": text, "logprobs": [], **inside},
        {"type": "response.output_text.done", "text": text, "logprobs": [], **inside},
        {"type": "response.content_part.done", "part": item["content"][0], **inside},
        {"type": "response.output_item.done", "item": item, **at},
        {"type": "response.completed", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _stream_messages(whole: Json, text: str) -> list[Json]:
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    usage = mapping(whole.get("usage"))
    return [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": usage.get("output_tokens", 0)}},
        {"type": "message_stop"},
    ]


_WRITTEN: Final[Mapping[str, Callable[[Json, str], Json]]] = {
    "chat": _write_chat, "completions": _write_completions, "responses": _write_responses,
    "messages": _write_messages, "gemini": _write_gemini, "ollama": _write_ollama,
}  # fmt: skip
_STREAMED: Final[Mapping[str, Callable[[Json, str], list[Json]]]] = {
    "chat": _stream_chat, "completions": lambda whole, text: [whole], "responses": _stream_responses,
    "messages": _stream_messages, "gemini": lambda whole, text: [whole],
}  # fmt: skip
