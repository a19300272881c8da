"""What a turn must be: a JSON schema, a regular expression or a Lark grammar, as a value that is recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final, get_args

from refork.errors import BadInput
from refork.types import Json

GrammarKind: TypeAlias = Literal["json_schema", "regex", "lark"]
KINDS: tuple[str, ...] = get_args(GrammarKind)


@final
@dataclass(frozen=True, slots=True)
class Grammar:
    """The texts that a turn may be, from its first token to its end.

    ``text`` is a JSON schema (an object, as JSON text, its properties in the order in which they are said), a
    regular expression that the whole turn matches, or a Lark grammar with a rule ``start``; what of each is
    understood is llguidance's.

    Raises:
        BadInput: an unknown kind, no text, or a schema that is no JSON object.
    """

    kind: GrammarKind
    text: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"there is no grammar of kind {self.kind!r}", hint=f"kinds: {', '.join(KINDS)}")
        if not isinstance(self.text, str) or not self.text.strip():
            raise BadInput(
                f"the {self.kind} of a grammar is {self.text!r}; it must be a text", where="grammar"
            )
        if self.kind == "json_schema":
            self._check_schema()

    def _check_schema(self) -> None:
        try:
            schema = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"the JSON schema is not JSON: {error}", where="grammar") from error
        if not isinstance(schema, dict):
            raise BadInput(f"the JSON schema is {self.text[:40]}; it must be an object", where="grammar")

    @classmethod
    def json_schema(cls, schema: Json | None = None) -> Grammar:
        """Texts of JSON that a schema allows; without one, any object.

        Raises: BadInput as the class.
        """
        try:
            return cls("json_schema", json.dumps({"type": "object"} if schema is None else schema))
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"the JSON schema is not plain JSON data: {error}", where="grammar") from error

    @classmethod
    def regex(cls, expression: str) -> Grammar:
        """Texts that match a regular expression as a whole."""
        return cls("regex", expression)

    @classmethod
    def lark(cls, grammar: str) -> Grammar:
        """Texts that a Lark grammar derives from its rule ``start``."""
        return cls("lark", grammar)

    def to_json(self) -> Json:
        """``{kind: text}``; a schema stays text, since the order of its properties matters."""
        return {self.kind: self.text}

    @classmethod
    def from_json(cls, data: Json) -> Grammar:
        """Inverse of :meth:`to_json`; a JSON schema may be an object too.

        Raises: BadInput as the class.
        """
        if not isinstance(data, dict) or len(data) != 1:
            said = f"a grammar is {str(data)[:60]!r}; it must be one kind with its text"
            raise BadInput(said, where="grammar", hint=f"kinds: {', '.join(KINDS)}")
        ((kind, text),) = data.items()
        if kind == "json_schema" and not isinstance(text, str):
            return cls.json_schema(text)
        named: Any = kind
        return cls(named, text)
