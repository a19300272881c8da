"""How the deterministic investigator weighs what it finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import final

from ramify.core.errors import BadInput
from ramify.core.types import Json
from ramify.discover.localize.bm25f import Bm25f

_SYMBOL_FIELDS = {
    "name": 4.0, "signature": 1.5, "doc": 2.5, "comment": 1.0, "string": 1.0, "body": 0.7, "path": 1.0,
}  # fmt: skip
_FILE_FIELDS = _SYMBOL_FIELDS | {"path": 2.0}


@final
@dataclass(frozen=True, slots=True)
class Weights:
    """What each kind of evidence counts in a symbol's score; each is first scaled to at most 1.

    ``symbol``, ``file``: words shared with the issue (BM25F). ``graph``: what neighbours in the call graph
    share. ``name``: named in the issue. ``path``: its file is named. ``literal``: holds a text that the
    issue quotes. ``trace``: in a stack trace. ``recent``, ``related``: git's record. ``spectrum``: run by
    failing tests.
    """

    symbol: float = 1.0
    file: float = 1.0
    graph: float = 0.6
    name: float = 1.0
    path: float = 1.0
    literal: float = 0.5
    trace: float = 3.0
    recent: float = 0.1
    related: float = 0.2
    spectrum: float = 8.0


@final
@dataclass(frozen=True, slots=True)
class InvestigateSettings:
    """Field weights, evidence weights, and the shape of the answer.

    ``locations``: at most so many. ``tests``: whether test files may be named. ``words``: at most so many
    query words. ``restart``: how soon spreading returns to where the words were found; ``backward``: how
    much it goes from a function to its callers, against 1 to what it calls. ``whole``: longer symbols
    [lines] are cut to ``window`` lines. ``half_life``: commits.

    Raises: BadInput for settings that make no sense.
    """

    symbol_fields: Bm25f = field(default_factory=lambda: Bm25f(_SYMBOL_FIELDS, k1=2.0))
    file_fields: Bm25f = field(default_factory=lambda: Bm25f(_FILE_FIELDS, k1=2.0))
    weights: Weights = field(default_factory=Weights)
    locations: int = 5
    tests: bool = False
    words: int = 200
    restart: float = 0.4
    backward: float = 0.25
    whole: int = 80
    window: int = 60
    half_life: float = 100.0
    module: float = 0.8

    def __post_init__(self) -> None:
        if self.locations < 1 or self.words < 1 or self.half_life <= 0:
            raise BadInput("locations and words are at least 1, and the half-life above 0")
        if not 0 < self.restart <= 1 or not 0 <= self.backward <= 1 or not 0 <= self.module <= 1:
            raise BadInput("restart lies in (0, 1], backward and module in [0, 1]")
        if not 1 <= self.window <= self.whole <= 300:
            raise BadInput("a window is at most a whole symbol, and that at most 300 lines")

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)
