"""What the memory keeps as text: plans, facts and pitfalls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from refork.errors import BadInput
from refork.types import Json
from refork_methods.memory.skeleton import CallStep, checked

#: plan: a reusable procedure. fact: a stable property of the environment.
#: pitfall: trigger, mistake, consequence.
ItemKind: TypeAlias = Literal["plan", "fact", "pitfall"]
KINDS: tuple[ItemKind, ...] = get_args(ItemKind)


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One text of the memory.

    ``id`` is given by the memory. ``valid`` is False once a later item superseded it or it was found wrong:
    then it is never returned. ``supersedes`` is the id of the item this one revises. ``evidence`` are ids of
    the steps it was learned from, ``refs`` names of tools that the text mentions, ``created`` the place of
    its event in the log. Plans may carry a ``skeleton`` and the ``query`` that they were learned from.
    """

    id: str
    kind: ItemKind
    body: str
    skeleton: tuple[CallStep, ...] = ()
    valid: bool = True
    supersedes: str | None = None
    evidence: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    created: int = 0
    query: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"there is no kind of item {self.kind!r}", hint=f"one of {', '.join(KINDS)}")
        if not self.body.strip():
            raise BadInput(f"the {self.kind} {self.id!r} has no text")
        if self.skeleton and self.kind != "plan":
            raise BadInput(f"a {self.kind} has no call skeleton; only plans do", where=self.id)
        checked(self.skeleton)

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "id": self.id,
            "kind": self.kind,
            "body": self.body,
            "skeleton": [step.to_json() for step in self.skeleton],
            "valid": self.valid,
            "supersedes": self.supersedes,
            "evidence": list(self.evidence),
            "refs": list(self.refs),
            "created": self.created,
            "query": self.query,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MemoryItem:
        """Inverse of :meth:`to_json`. Raises BadInput for a field that is missing or of no use."""
        try:
            return cls(
                id=str(data["id"]),
                kind=data["kind"],
                body=str(data["body"]),
                skeleton=tuple(CallStep.from_json(step) for step in data.get("skeleton", ())),
                valid=bool(data.get("valid", True)),
                supersedes=data.get("supersedes"),
                evidence=tuple(data.get("evidence", ())),
                refs=tuple(data.get("refs", ())),
                created=int(data.get("created", 0)),
                query=str(data.get("query", "")),
            )
        except KeyError as error:
            raise BadInput(f"a memory item lacks {error}") from error
