"""How the deterministic investigator weighs what it finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.localize.bm25f import Bm25f

_SYMBOL_FIELDS = {
    "name": 4.0, "signature": 1.5, "doc": 2.5, "comment": 1.0, "string": 1.0, "body": 0.7, "path": 1.0,
}  # fmt: skip
_FILE_FIELDS = _SYMBOL_FIELDS | {"path": 2.0}


@final
@dataclass(frozen=True, slots=True)
class Weights:
    """What each kind of evidence counts in the log-odds that a symbol shows the fault; each is at most 1.

    ``symbol``, ``file``: words shared with the issue (BM25F); ``whole``: the same by BM25 over whole files,
    fields alike. ``name``: named in the issue. ``path``: its file is named. ``literal``: holds a text that
    the issue quotes. ``value``: its literals stand in the issue's values. ``result``: the kind of its
    results, -1 where it does not fit. ``error``: it can raise what the issue names. ``size``: its lines.
    ``trace``: in a stack trace. ``recent``, ``related``: git's record. ``spectrum``: run by failing tests.
    """

    symbol: float = 4.5
    file: float = 0.7
    whole: float = 0.6
    name: float = 1.7
    path: float = 1.0
    literal: float = 1.8
    value: float = 1.0
    result: float = 0.8
    error: float = 1.8
    size: float = 2.0
    trace: float = 7.5
    recent: float = 0.2
    related: float = 1.7
    spectrum: float = 24.0


@final
@dataclass(frozen=True, slots=True)
class InvestigateSettings:
    """Field weights, evidence weights, and the shape of the answer.

    ``locations``: at most so many. ``tests``: whether test files may be named. ``words``: at most so many
    query words. ``per_file``: at most so many locations in one file, so that a few files are named.
    ``files``: how many files the case's own order of files holds. ``read``: bodies are read of so many best
    symbols and of what they call. ``whole``: longer symbols [lines] are cut to ``window`` lines.
    ``half_life``: commits. ``module``: what the share of a class, module or variable counts against a
    function's. ``functions``: how many functions the case's own order of functions holds. ``bodies``: what
    BM25 over function bodies counts there.

    Raises: BadInput for settings that make no sense.
    """

    symbol_fields: Bm25f = field(default_factory=lambda: Bm25f(_SYMBOL_FIELDS, k1=2.0))
    file_fields: Bm25f = field(default_factory=lambda: Bm25f(_FILE_FIELDS, k1=2.0))
    whole_fields: Bm25f = field(
        default_factory=lambda: Bm25f(dict.fromkeys(_SYMBOL_FIELDS, 1.0), b=0.75, k1=1.5)
    )
    weights: Weights = field(default_factory=Weights)
    locations: int = 5
    tests: bool = False
    words: int = 200
    per_file: int = 3
    files: int = 10
    read: int = 300
    whole: int = 80
    window: int = 60
    half_life: float = 100.0
    module: float = 0.2
    functions: int = 10
    bodies: float = 5.0

    def __post_init__(self) -> None:
        if self.locations < 1 or self.words < 1 or self.read < 0 or self.half_life <= 0:
            raise BadInput("locations and words are at least 1, read at least 0, the half-life above 0")
        if self.per_file < 1 or self.files < 1 or not 0 <= self.module <= 1:
            raise BadInput("per_file and files are at least 1, and module lies in [0, 1]")
        if self.functions < 1 or self.bodies < 0:
            raise BadInput("functions is at least 1, and bodies at least 0")
        if not 1 <= self.window <= self.whole <= 300:
            raise BadInput("a window is at most a whole symbol, and that at most 300 lines")

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)
