"""Requests and answers of ``/v1/chat/completions``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from refork.serve.api import SamplingBody, Usage
from refork.serve.api_forms import AllowedTools, NamedTool, ResponseFormat


class ChatMessage(BaseModel):
    """One message of a conversation; more fields than these are passed on to the model's template."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None


class FunctionSpec(BaseModel):
    """A function that may be called; ``parameters`` is a JSON schema."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolSpec(BaseModel):
    """A tool that is offered."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: Literal["function"] = "function"
    function: FunctionSpec


class ChatRequest(SamplingBody):
    """A conversation to answer. ``seed`` numbers the draw: the same seed, the same answer.

    A model that is no local policy has settings of its own: those of a request are accepted, and named as
    ignored in the answer's headers.
    """

    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[ToolSpec] = Field(default_factory=list, max_length=1024)
    tool_choice: Literal["none", "auto", "required"] | NamedTool | AllowedTools | None = None
    response_format: ResponseFormat | None = None
    parallel_tool_calls: bool = True
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)


class FunctionCall(BaseModel):
    """A function's name and its arguments as JSON text."""

    model_config = ConfigDict(extra="allow")

    name: str
    arguments: str


class ToolCallBody(BaseModel):
    """One call of a tool."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class ReplyMessage(BaseModel):
    """What the model said."""

    model_config = ConfigDict(extra="allow")

    role: Literal["assistant"]
    content: str | None = None
    tool_calls: list[ToolCallBody] | None = None


class LikelyToken(BaseModel):
    """A token, its bytes where they are whole characters, and its natural log-prob at temperature 1."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(LikelyToken):
    """A token that was said, and the likeliest ones in its place."""

    top_logprobs: list[LikelyToken]


class ChatLogprobs(BaseModel):
    """Log-probs of all tokens of an answer."""

    content: list[TokenLogprob] | None = None


class ChatChoice(BaseModel):
    """One answer; ``refork`` is what the model notes of it."""

    model_config = ConfigDict(extra="allow")

    index: int
    message: ReplyMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: Literal["stop", "length", "tool_calls", "error"]
    stop_reason: str | None = None
    token_ids: list[int] | None = None
    refork: dict[str, Any] | None = None


class ChatCompletion(BaseModel):
    """All answers."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None
