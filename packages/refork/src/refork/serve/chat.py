"""``POST /v1/chat/completions``: conversations, tools and streams."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, final

from refork.sampling.grammar import Grammar
from refork.serve.api import AllowedTools, ChatRequest, NamedTool, schema_of
from refork.serve.asking import check_choices, holder_of, ignored_header, settings_of, tokens_of
from refork.serve.exchange import Choice
from refork.serve.logprobs import chat_logprobs
from refork.serve.refusal import BadParameter
from refork.serve.served import ActiveRequest, Asked, Delta, Served, speaks_tokens
from refork.serve.service import Running, Service
from refork.serve.stream import DONE, ChunkHead, answer
from refork.serve.structured import Form, Mode, allowed
from refork.serve.turn import TurnText
from refork.serve.web import Request, Response
from refork.types import Json, Message

if TYPE_CHECKING:
    from refork.serve.additions import Pins


async def chat(service: Service, body: ChatRequest, request: Request) -> Response:
    """Answer one request, whole or as a stream.

    Raises: BadInput, Refused.
    """
    model = service.model(body.model)
    _check(body, model)
    check_choices(body.n, service.settings)
    form = _form(body)
    grammar, calls = await form.held(model)
    asked = _asked(body, model, service, form, grammar)
    talk = ChatChoices(body, model, partial(TurnText, asked.tools, calls), service.pins)
    call = call_of(service, body.model, asked, "chatcmpl-", body.stream, request)
    return await answer(service, call, talk, ignored_header(body, model))


def call_of(
    service: Service, model: str, asked: Asked, prefix: str, stream: bool, request: Request
) -> ActiveRequest:
    """A conversation as the model is asked: pinned rules put in."""
    pinned = None
    if service.pins is not None and asked.messages is not None:
        # What the answer begins with stays the last of them.
        begun = asked.messages[-1:] if asked.goes_on else ()
        ruled = service.pins.apply(asked.messages[: len(asked.messages) - len(begun)])
        asked = replace(asked, messages=(*ruled, *begun))
        pinned = service.pins.note
    return ActiveRequest(
        operation="chat",
        model=model,
        asked=(asked,),
        prefix=prefix,
        stream=stream,
        holder=holder_of(request),
        headers=request.headers,
        pinned=pinned,
    )


def _check(body: ChatRequest, model: Served) -> None:
    """Refuse what cannot be had, and what contradicts itself."""
    if body.logprobs:
        tokens_of(model, "log-probs", "logprobs")
    if body.return_token_ids:
        tokens_of(model, "token ids", "return_token_ids")
    if body.top_logprobs and not body.logprobs:
        raise BadParameter("top_logprobs", "top_logprobs: they come with logprobs, which are not asked for")
    if not (body.continue_final_message or body.add_generation_prompt):
        raise BadParameter("add_generation_prompt", "add_generation_prompt: a conversation is answered here")
    if body.continue_final_message:
        tokens_of(model, "the beginning of an answer", "continue_final_message")
        last = body.messages[-1]
        if last.role != "assistant" or not last.content or last.tool_calls or len(body.messages) < 2:
            said = "continue_final_message: the last message is no beginning of an answer of the assistant"
            raise BadParameter("continue_final_message", said)
        if "add_generation_prompt" in body.model_fields_set and body.add_generation_prompt:
            said = "add_generation_prompt: it begins an answer, and continue_final_message goes on with one"
            raise BadParameter("add_generation_prompt", said)
        if body.response_format is not None or body.tool_choice not in (None, "auto", "none"):
            said = "continue_final_message: an answer of a given form cannot be begun by somebody else"
            raise BadParameter("continue_final_message", said)
    limits = {body.max_tokens, body.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise BadParameter("max_tokens", "max_tokens and max_completion_tokens differ")


def _form(body: ChatRequest) -> Form:
    """What the answer must be."""
    choice, named = body.tool_choice, None
    mode: Mode = "auto" if choice is None else "required"
    if isinstance(choice, NamedTool):
        named = [choice.function.name]
    elif isinstance(choice, AllowedTools):
        mode = choice.allowed_tools.mode
        named = [tool.function.name for tool in choice.allowed_tools.tools]
    elif isinstance(choice, str):
        mode = choice
    return Form(
        mode,
        allowed([tool.function.model_dump(exclude_unset=True) for tool in body.tools], choice, mode, named),
        many=body.parallel_tool_calls and not isinstance(choice, NamedTool),
        answer=schema_of(body.response_format),
        tool_at="tools.{}.function.parameters".format,
        answer_at="response_format",
    )


def _asked(body: ChatRequest, model: Served, service: Service, form: Form, grammar: Grammar | None) -> Asked:
    messages = tuple(message.model_dump(exclude_unset=True) for message in body.messages)
    numbers = {number for number, _ in form.tools}
    offered = [tool for number, tool in enumerate(body.tools) if number in numbers]
    sampling, top = None, 0
    if speaks_tokens(model):
        newer = body.max_completion_tokens is not None
        limit = body.max_completion_tokens if newer else body.max_tokens
        name = "max_completion_tokens" if newer else "max_tokens"
        sampling = settings_of(body, service.settings, limit, name).but(grammar=grammar)
        top = body.top_logprobs or 0
    return Asked(
        messages=messages,
        tools=tuple(tool.model_dump(exclude_unset=True) for tool in offered),
        n=body.n,
        seed=body.seed,
        settings=sampling,
        top=top,
        keep_stop=body.include_stop_str_in_output,
        goes_on=body.continue_final_message,
    )


@final
@dataclass(slots=True)
class OpenChoice:
    """One choice of a conversation as it comes."""

    turn: TurnText
    tokens: list[int] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)
    finish: str | None = None
    stop: str | None = None
    message: Message = field(default_factory=dict)
    note: Json | None = None

    def put(self, delta: Delta) -> str:
        """Add what is new; the text that may be sent now."""
        self.tokens += delta.tokens
        self.finish, self.stop = delta.finish or self.finish, delta.stop or self.stop
        self.note = delta.note if delta.note is not None else self.note
        if delta.message is not None:
            self.message = delta.message
            return ""
        return self.turn.put(delta.text)

    def ended(self, choice: Choice, pins: Pins | None, *, many: bool) -> Choice:
        """The choice with its message, as it is recorded; without ``many`` its first call alone."""
        message = self.message or self.turn.message()
        if not many and message.get("tool_calls"):
            message = {**message, "tool_calls": message["tool_calls"][:1]}
        if pins is not None:
            message, pinned = pins.judged(message)
            self.note = {**(self.note or {}), "pinned": pinned}
        if message.get("tool_calls"):
            self.finish = "tool_calls"
        self.message = message
        finish: Any = self.finish
        return replace(choice, message=message, finish=finish, note=self.note)


@final
class ChatChoices:
    """All choices of one conversation, as they are written on the wire."""

    def __init__(
        self, body: ChatRequest, model: Served, turn: Callable[[], TurnText], pins: Pins | None
    ) -> None:
        self._body, self._pins = body, pins
        self._spell = model.spell if speaks_tokens(model) else str
        self.choices = [OpenChoice(turn()) for _ in range(body.n)]

    def put(self, number: int, delta: Delta) -> str:
        """Add what is new to its choice; the text that may be sent now."""
        choice = self.choices[delta.choice]
        # A stream writes them with their chunks and keeps none of them.
        if self._body.logprobs and not self._body.stream:
            choice.logprobs += chat_logprobs(delta, self._spell)
        return choice.put(delta)

    def ended(self, running: Running) -> list[list[Choice]]:
        """The choices with their messages, as they are recorded. All is said."""
        many = self._body.parallel_tool_calls
        pairs = zip(running.answers[0].choices(), self.choices, strict=True)
        return [[choice.ended(said, self._pins, many=many) for said, choice in pairs]]

    def whole(self, running: Running) -> Json:
        """The whole answer."""
        rows = []
        for index, choice in enumerate(self.choices):
            row: Json = {
                "index": index,
                "message": choice.message,
                "logprobs": {"content": choice.logprobs} if self._body.logprobs else None,
                **self._ending(choice),
            }
            if self._body.return_token_ids:
                row["token_ids"] = choice.tokens
            rows.append(row)
        whole: Json = {
            "id": running.id,
            "object": "chat.completion",
            "created": running.created,
            "model": self._body.model,
            "choices": rows,
            "usage": running.usage,
        }
        if self._body.return_token_ids:
            whole["prompt_token_ids"] = self._prompt(running)
        return whole

    def _prompt(self, running: Running) -> list[int]:
        prompt = running.answers[0].prompt
        return [] if prompt is None else prompt.tolist()

    def _ending(self, choice: OpenChoice) -> Json:
        """What a choice ends with: why, and (our own key ``refork``) what the model notes of it."""
        ending: Json = {"finish_reason": choice.finish}
        if choice.stop is not None:
            ending["stop_reason"] = choice.stop
        if choice.note is not None:
            ending["refork"] = choice.note
        return ending

    # -- streams -----------------------------------------------------------------------------------

    async def events(self, running: Running) -> AsyncGenerator[bytes]:
        """The answers as chunks: text as it comes, tool calls whole, then why each choice ended."""
        body = self._body
        head = ChunkHead(
            id=running.id, object="chat.completion.chunk", created=running.created, model=body.model
        )
        verbose = body.logprobs or body.return_token_ids
        begun: set[int] = set()
        async for number, deltas in running.parts():
            for delta in deltas:
                text, index = self.put(number, delta), delta.choice
                if delta.message is not None or not (text or (verbose and delta.tokens)):
                    continue
                # The role goes out with the first text; a turn of calls alone goes out as one.
                if index not in begun:
                    begun.add(index)
                    first = {"prompt_token_ids": self._prompt(running)} if body.return_token_ids else {}
                    yield head.chunk(_row(index, {"role": "assistant", "content": ""}, **first))
                if verbose:
                    yield head.chunk(_row(index, {"content": text}, **self._beside(delta)))
                else:
                    yield head.chunk(_PLAIN % (index, json.dumps(text)))
        await running.end(self.ended(running))
        for index, choice in enumerate(self.choices):
            if last := _last_delta(choice, index in begun):
                yield head.chunk(_row(index, last))
            yield head.chunk(_row(index, {}, **self._ending(choice)))
        if body.stream_options.include_usage:
            yield head.usage(running.usage)
        yield DONE

    def _beside(self, delta: Delta) -> Json:
        """What goes with the text of a chunk."""
        found: Json = {}
        if self._body.logprobs:
            found["logprobs"] = {"content": chat_logprobs(delta, self._spell)}
        if self._body.return_token_ids:
            found["token_ids"] = list(delta.tokens)
        return found


_PLAIN = '{"index": %d, "delta": {"content": %s}, "logprobs": null, "finish_reason": null}'


def _row(index: int, delta: Json, **more: Any) -> str:
    return json.dumps({"index": index, "delta": delta, "finish_reason": None, **more})


def _last_delta(choice: OpenChoice, begun: bool) -> Json:
    """What of a message is still to be sent once it is whole."""
    message = choice.message
    calls = [{"index": place, **call} for place, call in enumerate(message.get("tool_calls") or [])]
    if not begun:
        # Nothing was sent: the message goes out as one.
        delta = {key: value for key, value in message.items() if key != "tool_calls"}
    else:
        left = str(message.get("content") or "")[choice.turn.sent :]
        delta = {"content": left} if left else {}
    return delta | ({"tool_calls": calls} if calls else {})
