"""Requests and answers of every endpoint: what they have in common first, then each endpoint's own."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from refork.types import Json

#: Settings that change what is drawn and that no model here has: each with the values that ask for nothing.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "length_penalty": (1, 1.0),
    "min_tokens": (0,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "prompt_logprobs": (0,),
}

#: Names that one header holds; clients refuse long ones.
_TOLD = 50
# JSON's numbers hold 48 bits exactly in every client.
Seed = Annotated[int, Field(ge=0, lt=1 << 48)]
Token = Annotated[int, Field(ge=0, lt=1 << 31)]


class Body(BaseModel):
    """A request, read strictly; a field that is null counts as left out, and fields it does not have stay."""

    model_config = ConfigDict(extra="allow", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data

    @property
    def unknown(self) -> Json:
        """Fields that this endpoint has no name for."""
        return self.model_extra or {}


class StreamOptions(BaseModel):
    """``include_usage``: a last chunk with the counts."""

    include_usage: bool = False


class DrawnBody(Body):
    """How tokens are drawn. ``seed``: the same seed and prompt, the same tokens; choice i is its draw i."""

    model: str
    seed: Seed | None = None
    temperature: float | None = Field(default=None, ge=0, le=100, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    stream: bool = False


class SamplingBody(DrawnBody):
    """How choices are drawn.

    Ours and vLLM's: ``top_k``, ``min_p``, ``repetition_penalty``, ``stop_token_ids``, ``ignore_eos``,
    ``include_stop_str_in_output``, ``return_token_ids``. Of ``logit_bias`` only -100 (never) can be had.
    """

    n: int = Field(default=1, ge=1, le=128)
    stop: str | list[str] | None = None
    stop_token_ids: list[Token] = Field(default_factory=list, max_length=128)
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    logit_bias: dict[str, float] = Field(default_factory=dict)
    return_token_ids: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)


#: Fields of :class:`SamplingBody` that only a model which speaks tokens honours.
SETTINGS = frozenset(
    {"min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"}
    | {"temperature", "top_p", "top_k", "stop", "stop_token_ids", "ignore_eos", "include_stop_str_in_output"}
    | {"logit_bias", "max_tokens", "max_completion_tokens", "max_output_tokens"}
)


def ignored_names(names: set[str]) -> str:
    """Settings that have no effect, as a header has them; those that none is called like are ``...``."""
    told = sorted({n if re.fullmatch(r"\w{1,40}", n, re.ASCII) else "..." for n in names})
    return ", ".join(told[:_TOLD] + ["..."] * (len(told) > _TOLD))


class Usage(BaseModel):
    """Tokens read and said."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ModelRow(BaseModel):
    """One model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "refork"


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[ModelRow]


class Health(BaseModel):
    """``ok``, or what is broken by model."""

    status: Literal["ok", "broken"]
    models: dict[str, str] | None = None


class ErrorDetail(BaseModel):
    """What is wrong; ``param`` names the field."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """OpenAI's form of an error."""

    error: ErrorDetail


# Forms that a request may ask an answer to have: which tools must be called, what its text must be.


class FunctionName(BaseModel):
    """Which function."""

    name: str


class NamedTool(BaseModel):
    """A tool that is to be called."""

    type: Literal["function"]
    function: FunctionName


class AllowedList(BaseModel):
    """Which of the tools may be called, and whether one must be."""

    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1, max_length=1024)


class AllowedTools(BaseModel):
    """Some of the tools in place of all."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedList


class TextFormat(BaseModel):
    """Any text."""

    type: Literal["text"]


class ObjectFormat(BaseModel):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(BaseModel):
    """A JSON schema; ``strict`` changes nothing, for every schema is held to."""

    model_config = ConfigDict(extra="allow")

    name: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class SchemaFormat(BaseModel):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat: TypeAlias = Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")]


class FlatSchemaFormat(NamedSchema):
    """JSON of a schema, as ``/v1/responses`` writes it."""

    type: Literal["json_schema"]


class TextSettings(BaseModel):
    """What the text of a response must be."""

    model_config = ConfigDict(extra="allow")

    format: Annotated[TextFormat | ObjectFormat | FlatSchemaFormat, Field(discriminator="type")] | None = None


def schema_of(wanted: TextFormat | ObjectFormat | SchemaFormat | FlatSchemaFormat | None) -> Json | None:
    """The schema that an answer's text must have; None: any text."""
    if wanted is None or isinstance(wanted, TextFormat):
        return None
    if isinstance(wanted, ObjectFormat):
        return {"type": "object"}
    named = wanted.json_schema if isinstance(wanted, SchemaFormat) else wanted
    return {} if named.schema_ is None else named.schema_


# Requests and answers of `/v1/chat/completions`.


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
    ignored in the answer's headers. With ``continue_final_message`` the last message, one of the assistant,
    is the beginning of the answer: a local model goes on from it, and what is answered comes behind it.
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
    continue_final_message: bool = False
    add_generation_prompt: bool = True


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


# Requests and answers of `/tokenize` and `/detokenize`.


class TokenizeRequest(Body):
    """A text or a conversation. ``add_special_tokens``: a text begins as the tokenizer begins one."""

    model: str
    prompt: str | None = None
    messages: list[ChatMessage] | None = Field(default=None, min_length=1)
    tools: list[ToolSpec] = Field(default_factory=list, max_length=1024)
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool = False


class Tokenized(BaseModel):
    """Tokens, how many there are, and how many the model may read; ``token_strs``: each as text."""

    count: int
    max_model_len: int | None
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(Body):
    """Token ids."""

    model: str
    tokens: list[Token]


class Detokenized(BaseModel):
    """Their text."""

    prompt: str


# Requests and answers of `/v1/completions`.


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


# Requests and answers of `/v1/responses`, as far as they are stateless text and calls.


class FlatNamedTool(BaseModel):
    """A tool that is to be called: by its name, or by its kind where it has none."""

    type: str
    name: str | None = None
    namespace: str | None = None

    @field_validator("type")
    @classmethod
    def _one(cls, kind: str) -> str:
        if kind == "allowed_tools":
            raise ValueError("these are several tools")
        return kind


class FlatAllowedTools(BaseModel):
    """Which of the tools may be called, and whether one must be."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[FlatNamedTool] = Field(min_length=1, max_length=1024)


class ResponseRequest(DrawnBody):
    """A text or a list of messages, calls and their outputs. Nothing is kept between requests.

    ``seed``, ``top_k``, ``min_p`` and the penalties are ours; the seed does what it does for chat
    completions.
    """

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    tools: list[dict[str, Any]] = Field(default_factory=list, max_length=1024)
    tool_choice: Literal["none", "auto", "required"] | FlatNamedTool | FlatAllowedTools | None = None
    text: TextSettings | None = None
    parallel_tool_calls: bool = True
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
    """The answer: messages and calls in ``output``."""

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
