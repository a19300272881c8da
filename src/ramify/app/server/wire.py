"""What is asked and answered on the wire: OpenAI's chat completions, read strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ramify.core.chat import Reply
from ramify.core.errors import BadInput
from ramify.core.types import Json


class StreamOptions(BaseModel):
    """``include_usage``: a last chunk with the counts."""

    include_usage: bool = False


class Asked(BaseModel):
    """A request for a chat completion. ``seed`` numbers the draw: the same seed, the same answer.

    A field that is null counts as left out, as OpenAI has it. Other settings (temperature, max_tokens and so
    on) are a chat model's own here: they are accepted, and named as ignored in the answer's headers.
    """

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    n: int = Field(default=1, ge=1, le=64)
    seed: int | None = Field(default=None, ge=0, lt=1 << 48)
    stream: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data

    @property
    def ignored(self) -> list[str]:
        """Keys that have no effect here, sorted; of those that no setting is called like, only ``...``."""
        extra = self.model_extra or {}
        return sorted({key if re.fullmatch(r"\w{1,40}", key, re.ASCII) else "..." for key in extra})


def read_asked(body: bytes) -> Asked:
    """A request from its body.

    Raises:
        BadInput: no JSON object, or a field of the wrong kind; the field is named.
    """
    try:
        asked = Asked.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        raise BadInput(f"{place}: {first['msg']}", where="request") from error
    for number, message in enumerate(asked.messages):
        if not isinstance(message.get("role"), str):
            raise BadInput(f"messages.{number}.role: a message needs a role", where="request")
    return asked


def finish_reason(reply: Reply) -> Literal["stop", "length", "tool_calls"]:
    """Why an answer ended, in the wire's words."""
    if reply.message.get("tool_calls"):
        return "tool_calls"
    return "length" if reply.finish == "length" else "stop"


def ending(reply: Reply) -> Json:
    """What a choice ends with: why it ended, and (our own key ``ramify``) what the model notes of it."""
    noted = {} if reply.note is None else {"ramify": reply.note}
    return {"finish_reason": finish_reason(reply), **noted}


def usage(replies: list[Reply]) -> Json | None:
    """Token counts summed; None where a reply does not know its own."""
    sums = [(reply.cost.tokens_in, reply.cost.tokens_out) for reply in replies]
    if any(asked is None or said is None for asked, said in sums):
        return None
    prompt, completion = (sum(pair[side] or 0 for pair in sums) for side in (0, 1))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def completion(head: Json, replies: list[Reply]) -> Json:
    """The whole answer. ``head`` has its id, time of creation and model."""
    choices = [
        {"index": i, "message": reply.message, "logprobs": None, **ending(reply)}
        for i, reply in enumerate(replies)
    ]
    return {**head, "object": "chat.completion", "choices": choices, "usage": usage(replies)}


def chunks(head: Json, replies: list[Reply], include_usage: bool) -> Iterator[str]:
    """The answer as server-sent events. A reply is made whole before its first chunk."""
    head = {**head, "object": "chat.completion.chunk"}

    def event(**more: Any) -> str:
        return f"data: {json.dumps({**head, **more})}\n\n"

    for i, reply in enumerate(replies):
        delta = {key: value for key, value in reply.message.items() if key != "tool_calls"}
        calls = reply.message.get("tool_calls") or []
        if calls:
            delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(calls)]
        yield event(choices=[{"index": i, "delta": delta, "finish_reason": None}])
        yield event(choices=[{"index": i, "delta": {}, **ending(reply)}])
    if include_usage:
        yield event(choices=[], usage=usage(replies))
    yield "data: [DONE]\n\n"
