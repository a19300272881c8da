"""``POST /v1/responses``: text and calls of tools, whole or as OpenAI's events, nothing kept."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, final

from pydantic import BaseModel

from refork.policies.call_form import CallForm
from refork.sampling.grammar import Grammar
from refork.serve.api import (
    DrawnBody,
    FlatAllowedTools,
    FlatNamedTool,
    ResponseRequest,
    SamplingBody,
    schema_of,
)
from refork.serve.asking import ignored_header, refuse_unsupported, settings_of
from refork.serve.chat import OpenChoice, call_of
from refork.serve.exchange import Choice
from refork.serve.refusal import BadParameter
from refork.serve.response_tools import ResponseTools, call_of_item, output_of_item
from refork.serve.served import Asked, Delta, Served, speaks_tokens
from refork.serve.service import Running, Service
from refork.serve.stream import answer
from refork.serve.structured import Form, Mode, allowed
from refork.serve.turn import TurnText
from refork.serve.web import Request, Response
from refork.types import Json, Message

if TYPE_CHECKING:
    from refork.serve.additions import Pins

# Items of `/v1/responses` as chat messages, and back.


_TEXTS = frozenset({"input_text", "output_text", "text"})


def messages_of(given: str | Sequence[Json], instructions: str | None) -> tuple[Message, ...]:
    """A request's input as chat messages, its instructions first.

    Raises: BadParameter for items that are no text, call of a client's tool or output of one.
    """
    messages: list[Message] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return (*messages, {"role": "user", "content": given})
    for number, item in enumerate(given):
        message = _message(item, f"input.{number}")
        if message is None:
            continue
        calls = message.get("tool_calls")
        # Parallel calls come as items of their own, but a chat template wants them in one message.
        if calls and messages and messages[-1].get("tool_calls"):
            messages[-1]["tool_calls"] += calls
        elif calls and messages and messages[-1]["role"] == "assistant":
            messages[-1]["tool_calls"] = calls
        else:
            messages.append(message)
    if not messages:
        raise BadParameter("input", "input: there is no message")
    return tuple(messages)


def _message(item: Json, where: str) -> Message | None:
    kind = item.get("type", "message")
    if kind == "message" and isinstance(item.get("role"), str):
        role = "system" if item["role"] == "developer" else item["role"]
        return {"role": role, "content": _text(item.get("content"), f"{where}.content")}
    call = call_of_item(item)
    if call is not None:
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    output = output_of_item(item, lambda content: _text(content, f"{where}.output"))
    if output is not None:
        return {"role": "tool", "tool_call_id": output[0], "content": output[1]}
    if kind in ("reasoning", "additional_tools"):
        return None
    if kind == "configuration_update" and not item.get("text"):
        return None  # how hard to think, which no model here is told
    raise BadParameter(where, f"{where}: an item of type {kind!r} cannot be read here"[:200])


def _text(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = []
    for part in parts:
        if not isinstance(part, dict) or str(part.get("type")) not in _TEXTS:
            raise BadParameter(where, f"{where}: only text can be read here")
        texts.append(str(part.get("text", "")))
    return "".join(texts)


def text_item(name: str, text: str, status: str) -> Json:
    """A message of the answer."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    content = [part] if status != "in_progress" else []
    return {"id": name, "type": "message", "role": "assistant", "status": status, "content": content}


#: What would need a memory of earlier answers, or work without a client.
_KEPT = ("background", "conversation", "prompt")


async def respond(service: Service, body: ResponseRequest, request: Request) -> Response:
    """Answer one request, whole or as a stream.

    Raises: BadInput, Refused.
    """
    model = service.model(body.model)
    _check(body)
    tools = ResponseTools.of(body.tools, body.input)
    form = _form(body, tools)
    grammar, calls = await form.held(model)
    asked = _asked(body, model, service, form, grammar)
    reply = ResponseWriter(body, asked, tools, calls, service.pins)
    call = call_of(service, body.model, asked, "resp_", body.stream, request)
    return await answer(service, call, reply, ignored_header(body, model) | tools.header)


def _check(body: ResponseRequest) -> None:
    if body.previous_response_id is not None:
        raise BadParameter(
            "previous_response_id",
            "previous_response_id: this server keeps no answers",
            hint="send the whole conversation as input",
        )
    if body.store:
        raise BadParameter("store", "store: this server keeps no answers", hint="leave it out, or false")
    for name in _KEPT:
        if body.unknown.get(name):
            raise BadParameter(name, f"{name}: it cannot be had here")
    refuse_unsupported(body)


_PLAIN = {"type": "text"}


def _form(body: ResponseRequest, tools: ResponseTools) -> Form:
    """What the answer must be. Raises BadParameter for a choice that is none of the tools."""
    choice, named = body.tool_choice, None
    mode: Mode = "auto" if choice is None else "required"
    if isinstance(choice, FlatNamedTool):
        named = [tools.named(choice)]
    elif isinstance(choice, FlatAllowedTools):
        mode, named = choice.mode, tools.some(choice)
    elif isinstance(choice, str):
        mode = choice
    return Form(
        mode,
        allowed(tools.functions, choice, mode, named),
        many=body.parallel_tool_calls and not isinstance(choice, FlatNamedTool),
        answer=schema_of(body.text.format) if body.text is not None else None,
        tool_at=tools.parameters_at,
        answer_at="text.format",
    )


def _asked(
    body: ResponseRequest, model: Served, service: Service, form: Form, grammar: Grammar | None
) -> Asked:
    sampling = None
    if speaks_tokens(model):
        plain = SamplingBody(**{name: getattr(body, name) for name in DrawnBody.model_fields})
        sampling = settings_of(plain, service.settings, body.max_output_tokens, "max_output_tokens")
        sampling = sampling.but(grammar=grammar)
    return Asked(
        messages=messages_of(body.input, body.instructions),
        tools=tuple({"type": "function", "function": function} for _, function in form.tools),
        seed=body.seed,
        settings=sampling,
    )


@final
class ResponseWriter:
    """One answer, as it is written on the wire."""

    def __init__(
        self,
        body: ResponseRequest,
        asked: Asked,
        tools: ResponseTools,
        calls: CallForm | None,
        pins: Pins | None,
    ) -> None:
        self._body, self._settings, self._tools, self._pins = body, asked.settings, tools, pins
        self._choice = OpenChoice(TurnText(asked.tools, calls))
        self._item = f"msg_{uuid.uuid4().hex}"
        self._calls: list[Json] = []
        # A choice that calls ends with "tool_calls", also where it was cut off behind a whole call.
        self._cut = False

    def put(self, number: int, delta: Delta) -> str:
        """Add what is new; the text that may be sent now."""
        self._cut = self._cut or delta.finish == "length"
        return self._choice.put(delta)

    def ended(self, running: Running) -> list[list[Choice]]:
        """The answer with its message, as it is recorded. All is said."""
        (said,) = running.answers[0].choices()
        found = self._choice.ended(said, self._pins, many=self._body.parallel_tool_calls)
        self._calls = self._tools.call_items(self._choice.message)
        return [[found]]

    @property
    def _text(self) -> str:
        return str(self._choice.message.get("content") or "")

    @property
    def _status(self) -> str:
        return "incomplete" if self._cut else "completed"

    def _output(self) -> list[Json]:
        said = self._text or not self._calls
        return [*([text_item(self._item, self._text, self._status)] if said else []), *self._calls]

    def whole(self, running: Running, status: str | None = None) -> Json:
        """The answer; ``status`` says that it is not complete yet."""
        body = self._body
        choice, text = body.tool_choice, body.text
        whole: Json = {
            "id": running.id,
            "object": "response",
            "created_at": running.created,
            "status": status or self._status,
            "model": body.model,
            "output": [] if status else self._output(),
            "usage": None if status else _usage(running),
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if self._cut and not status else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata,
            "parallel_tool_calls": body.parallel_tool_calls,
            "previous_response_id": None,
            "store": False,
            "temperature": None if self._settings is None else self._settings.temperature,
            "text": {"format": _PLAIN}
            | ({} if text is None else text.model_dump(by_alias=True, exclude_unset=True)),
            "tool_choice": choice.model_dump(exclude_unset=True)
            if isinstance(choice, BaseModel)
            else choice or "auto",
            "tools": body.tools,
            "top_p": None if self._settings is None else self._settings.top_p or 1.0,
        }
        if self._choice.note is not None:
            whole["refork"] = self._choice.note
        return whole

    # -- streams -----------------------------------------------------------------------------------

    async def events(self, running: Running) -> AsyncGenerator[bytes]:
        """The answer as events."""
        page = _Events()
        begun = self.whole(running, "in_progress")
        yield page.event("response.created", response=begun)
        yield page.event("response.in_progress", response=begun)
        place = {"item_id": self._item, "output_index": 0, "content_index": 0}
        sent = 0
        async for number, deltas in running.parts():
            for delta in deltas:
                text = self.put(number, delta)
                if text and not sent:
                    for chunk in self._open(page):
                        yield chunk
                if text:
                    sent += len(text)
                    yield page.event("response.output_text.delta", **place, delta=text, logprobs=[])
        await running.end(self.ended(running))
        left = self._text[sent:]
        if not sent and (left or not self._calls):
            for chunk in self._open(page):
                yield chunk
        if left:
            yield page.event("response.output_text.delta", **place, delta=left, logprobs=[])
        for chunk in self._close(page, place):
            yield chunk
        yield page.event(f"response.{self._status}", response=self.whole(running))

    def _open(self, page: _Events) -> list[bytes]:
        item = text_item(self._item, "", "in_progress")
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return [
            page.event("response.output_item.added", output_index=0, item=item),
            page.event(
                "response.content_part.added",
                item_id=self._item,
                output_index=0,
                content_index=0,
                part=part,
            ),
        ]

    def _close(self, page: _Events, place: Json) -> list[bytes]:
        """The message is done, then every call, each whole."""
        found = []
        output = self._output()
        for index, item in enumerate(output):
            if item["type"] == "message":
                (part,) = item["content"]
                found += [
                    page.event("response.output_text.done", **place, text=part["text"], logprobs=[]),
                    page.event("response.content_part.done", **place, part=part),
                ]
            else:
                found += _call_events(page, item, index)
            found.append(page.event("response.output_item.done", output_index=index, item=item))
        return found


@final
class _Events:
    """Numbers the events of one stream."""

    def __init__(self) -> None:
        self._number = -1

    def event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        data = json.dumps({"type": kind, "sequence_number": self._number, **fields})
        return f"event: {kind}\ndata: {data}\n\n".encode()


def _call_events(page: _Events, item: Json, index: int) -> list[bytes]:
    """A call's beginning and, where its kind has such events, what is said in it."""
    where = {"item_id": item["id"], "output_index": index}
    told = {"function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
    opened = {**item, "status": "in_progress"} | ({} if told is None else {told: ""})
    found = [page.event("response.output_item.added", output_index=index, item=opened)]
    if item["type"] == "function_call":
        said, kind = item["arguments"], "response.function_call_arguments"
        found.append(page.event(f"{kind}.delta", **where, delta=said))
        found.append(page.event(f"{kind}.done", **where, name=item["name"], arguments=said))
    elif item["type"] == "custom_tool_call":
        said, kind = item["input"], "response.custom_tool_call_input"
        found.append(page.event(f"{kind}.delta", **where, delta=said))
        found.append(page.event(f"{kind}.done", **where, input=said))
    return found


def _usage(running: Running) -> Json | None:
    counts = running.usage
    if counts is None:
        return None
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counts["total_tokens"],
    }
