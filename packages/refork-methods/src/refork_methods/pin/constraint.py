"""A rule that must stay in view, as a value."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork.types import Json

#: soft: a helpful act that only this house forbids. hard: an act that models often refuse by themselves.
RuleKind: TypeAlias = Literal["soft", "hard"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MARK = "pinned-rules"


@final
@dataclass(frozen=True, slots=True)
class Constraint:
    """One rule: the words that a model must see, and how an act against it is recognised.

    ``text`` is what is pinned, byte for byte. ``tool`` and ``checker`` (the grammar of
    :mod:`refork_methods.pin.checkers`) say which call breaks it; None: nobody can tell
    mechanically. ``version`` starts at 1 and grows by one with every signed change.
    """

    id: str
    text: str
    kind: RuleKind = "soft"
    tool: str | None = None
    checker: Json | None = None
    version: int = 1

    def __post_init__(self) -> None:
        where = f"rule {self.id!r}"
        if not _ID.fullmatch(self.id):
            raise BadInput("a rule's id is 1 to 64 letters, digits, '_', '.' or '-'", where=where)
        if not self.text.strip():
            raise BadInput("a rule has no text", where=where, hint="state what must hold, in one sentence")
        if MARK in self.text.lower():
            raise BadInput(f"a rule's text must not hold the mark {MARK!r}", where=where)
        if self.kind not in ("soft", "hard"):
            raise BadInput(f"kind is {self.kind!r}; it must be 'soft' or 'hard'", where=where)
        if self.version < 1:
            raise BadInput(f"version is {self.version}; it must be at least 1", where=where)

    @property
    def entry(self) -> str:
        """The bytes that stand in the model's input."""
        return f"[{self.id} v{self.version}] {self.text}"

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of id, version and text."""
        return hashlib.sha256(json.dumps([self.id, self.version, self.text]).encode()).hexdigest()
