"""Forms that a request may ask an answer to have: which tools must be called, what its text must be."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from refork.types import Json


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
