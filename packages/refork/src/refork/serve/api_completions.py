"""Requests and answers of ``/v1/completions``."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from refork.serve.api import SamplingBody, Token, Usage

# Of millions of items the first wrong one is enough.
_Ids: TypeAlias = Annotated[list[Token], Field(fail_fast=True)]
_Texts: TypeAlias = Annotated[list[str], Field(fail_fast=True)]
_Prompts: TypeAlias = Annotated[list[_Ids], Field(fail_fast=True)]


class CompletionRequest(SamplingBody):
    """One prompt or several, as text or token ids. ``logprobs``: of each token and of so many likeliest ones.

    ``echo`` gives the prompt back before what is drawn, with its log-probs where they are asked for;
    ``max_tokens=0`` then draws nothing. ``return_tokens_as_token_ids`` spells tokens ``token_id:N``.
    """

    prompt: str | _Ids | _Texts | _Prompts
    max_tokens: int | None = Field(default=None, ge=0)
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool = False
    best_of: int | None = Field(default=None, ge=1)
    return_tokens_as_token_ids: bool = False
    no_stop_trim: bool = False


class CompletionLogprobs(BaseModel):
    """Per token: its text, natural log-prob at temperature 1, likeliest others, and where it begins."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One answer."""

    model_config = ConfigDict(extra="allow")

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: Literal["stop", "length", "error"] | None = None
    stop_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class Completion(BaseModel):
    """All answers."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
