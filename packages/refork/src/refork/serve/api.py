"""What all endpoints ask and answer in common: settings of sampling, counts, models, errors."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

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


class SamplingBody(Body):
    """How tokens are drawn. ``seed``: the same seed and prompt, the same tokens; choice i is its draw i.

    Ours and vLLM's: ``top_k``, ``min_p``, ``repetition_penalty``, ``stop_token_ids``, ``ignore_eos``,
    ``include_stop_str_in_output``, ``return_token_ids``. Of ``logit_bias`` only -100 (never) can be had.
    """

    model: str
    n: int = Field(default=1, ge=1, le=128)
    seed: Seed | None = None
    temperature: float | None = Field(default=None, ge=0, le=100, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    stop: str | list[str] | None = None
    stop_token_ids: list[Token] = Field(default_factory=list, max_length=128)
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    logit_bias: dict[str, float] = Field(default_factory=dict)
    return_token_ids: bool = False
    stream: bool = False
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
