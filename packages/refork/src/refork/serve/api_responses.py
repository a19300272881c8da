"""Requests and answers of ``/v1/responses``, as far as they are stateless text and function calls."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from refork.serve.api import Body, Seed
from refork.serve.api_forms import TextSettings


class FlatNamedTool(BaseModel):
    """A function that is to be called."""

    type: Literal["function"]
    name: str


class FlatAllowedTools(BaseModel):
    """Which of the functions may be called, and whether one must be."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[FlatNamedTool] = Field(min_length=1, max_length=1024)


class ResponseRequest(Body):
    """A text or a list of messages, function calls and their outputs. Nothing is kept between requests.

    ``seed``, ``top_k``, ``min_p`` and the penalties are ours; the seed does what it does for chat
    completions.
    """

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=100, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    seed: Seed | None = None
    tools: list[dict[str, Any]] = Field(default_factory=list, max_length=1024)
    tool_choice: Literal["none", "auto", "required"] | FlatNamedTool | FlatAllowedTools | None = None
    text: TextSettings | None = None
    parallel_tool_calls: bool = True
    stream: bool = False
    store: bool | None = None
    previous_response_id: str | None = None
    metadata: dict[str, str] = Field(default_factory=dict)


class ResponseUsage(BaseModel):
    """Tokens read and said."""

    model_config = ConfigDict(extra="allow")

    input_tokens: int
    output_tokens: int
    total_tokens: int


class ResponseBody(BaseModel):
    """The answer: messages and function calls in ``output``."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete", "in_progress", "failed"]
    model: str
    output: list[dict[str, Any]]
    usage: ResponseUsage | None = None
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
