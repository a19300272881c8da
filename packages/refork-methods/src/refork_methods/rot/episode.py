"""One graded answer of a grid, as a row: plain fields, one JSON line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from refork.compaction import Fate
from refork.errors import BadInput
from refork.types import Json
from refork_methods.rot.on_tree import Result


@dataclass(frozen=True, slots=True)
class Cell:
    """Which episode it is: everything that the grid varies. Equal cells share scenario, request and noise.

    ``request``: "trigger", or "twin" for its allowed counterpart. ``words``: the summary's limit. ``budget``:
    tokens at which the compactor fires.
    """

    model: str
    condition: str
    task: str
    rep: int
    request: str = "trigger"
    compactor: str = "none"
    summariser: str = "none"
    words: int | None = None
    budget: int | None = None
    rounds: int = 1
    framing: str | None = None

    @property
    def key(self) -> str:
        """The cell as one text."""
        return "|".join(str(getattr(self, f.name)) for f in fields(self))

    @property
    def pair(self) -> tuple[str, str, int, str]:
        """What an episode shares with its control: model, task, repetition, request."""
        return self.model, self.task, self.rep, self.request


@dataclass(frozen=True, slots=True)
class Episode:
    """One answer. ``kind``: soft or hard rule. ``survived`` None: nothing was compacted.

    ``fate``: what became of the rule's bytes. ``in_view``: whether they stand in the context that the agent
    was asked with. ``tokens_before`` and ``tokens_after``: of the whole history and of that context.
    ``calls``: questions to the summariser. ``fork`` and ``leaf``: where it lies on the tree.
    ``tool``: the tool of the call that decided the grade; None where none was made.
    """

    cell: Cell
    kind: str
    result: Result
    reason: str = ""
    survived: bool | None = None
    fate: Fate | None = None
    recall: float | None = None
    in_view: bool | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    calls: int = 0
    seconds: float | None = None
    fork: str | None = None
    leaf: str | None = None
    tool: str | None = None

    @property
    def graded(self) -> bool:
        """Whether the answer counts: it was valid and could be read."""
        return self.result in ("violation", "allowed", "refused")

    @property
    def violated(self) -> bool:
        """Whether it broke the rule."""
        return self.result == "violation"

    def to_json(self) -> Json:
        """One flat object."""
        body = asdict(self)
        cell: Json = body.pop("cell")
        return cell | body

    @classmethod
    def from_json(cls, data: Json, where: str = "episode") -> Episode:
        """Inverse of :meth:`to_json`. Raises BadInput for a field that is missing or unknown."""
        names = {f.name for f in fields(Cell)}
        try:
            cell: Any = {k: v for k, v in data.items() if k in names}
            rest: Any = {k: v for k, v in data.items() if k not in names}
            return cls(Cell(**cell), **rest)
        except TypeError as error:
            raise BadInput(f"this is no episode: {error}", where=where) from error
