"""The case file: where an issue's cause is thought to lie, why, and from what evidence."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias, final, get_args

from refork.errors import BadInput
from refork.settings import present_mark
from refork.types import Json

FORMAT = "refork case file"
VERSION = 1
#: The longest span of lines that still counts as a place.
LONGEST = 300

Status: TypeAlias = Literal["final", "forced", "empty"]


@final
@dataclass(frozen=True, slots=True)
class Dependency:
    """Another place that a change here has to respect, and why."""

    path: str
    symbol: str | None
    why: str


@final
@dataclass(frozen=True, slots=True)
class Location:
    """One span of lines, 1-based and both ends included, with its diagnosis.

    ``confidence`` is a calibrated chance of being right, None where nothing was calibrated; ``score`` is
    the raw ranking score, comparable within one producer only. ``evidence`` holds the turns that showed
    these lines.
    """

    path: str
    start: int
    end: int
    explanation: str
    root_cause: str
    solution_idea: str
    symbol: str | None = None
    dependencies: tuple[Dependency, ...] = ()
    testing_impact: tuple[str, ...] = ()
    confidence: float | None = None
    evidence: tuple[int, ...] = ()
    score: float | None = None

    @property
    def lines(self) -> int:
        """How many lines the span has."""
        return self.end - self.start + 1

    def place(self) -> str:
        """``path:start-end``."""
        return f"{self.path}:{self.start}-{self.end}"

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self) | {
            "dependencies": [asdict(one) for one in self.dependencies],
            "testing_impact": list(self.testing_impact),
            "evidence": list(self.evidence),
        }

    @classmethod
    def from_json(cls, data: object, where: str = "location") -> Location:
        """Inverse of :meth:`to_json`; optional fields may be left out. Raises BadInput for anything else."""
        if not isinstance(data, dict):
            raise BadInput("a location is a JSON object", where=where)
        return cls(
            path=_text(data, "path", where),
            start=_whole(data.get("start"), "start", where),
            end=_whole(data.get("end"), "end", where),
            explanation=_text(data, "explanation", where),
            root_cause=_text(data, "root_cause", where),
            solution_idea=_text(data, "solution_idea", where),
            symbol=_optional_text(data, "symbol", where),
            dependencies=tuple(_dependency(one, where) for one in _rows(data, "dependencies", where)),
            testing_impact=tuple(
                _string(one, "testing_impact", where) for one in _rows(data, "testing_impact", where)
            ),
            confidence=_number(data.get("confidence"), "confidence", where),
            evidence=tuple(_whole(one, "evidence", where) for one in _rows(data, "evidence", where)),
            score=_number(data.get("score"), "score", where),
        )


@final
@dataclass(frozen=True, slots=True)
class CaseFile:
    """Locations, best first where ``ranked``; how the search ended; who made it, of what (``meta``).

    Status ``forced`` means that the producer ran out of turns and answered from what it had seen; ``empty``
    that it found no place, and then there are no locations.

    Raises: BadInput for an unknown status, or one that contradicts the locations.
    """

    locations: tuple[Location, ...]
    status: Status = "final"
    ranked: bool = True
    meta: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise BadInput(f"unknown status {self.status!r}", hint=f"one of {', '.join(get_args(Status))}")
        if (self.status == "empty") == bool(self.locations):
            raise BadInput(f"status {self.status!r} does not fit {len(self.locations)} locations")

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, each once, in the order of their first location."""
        return tuple(dict.fromkeys(one.path for one in self.locations))

    def to_json(self) -> Json:
        """The versioned document."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "status": self.status,
            "ranked": self.ranked,
            "locations": [one.to_json() for one in self.locations],
            "meta": self.meta,
        }

    @classmethod
    def from_json(cls, data: Json) -> CaseFile:
        """Inverse of :meth:`to_json`. Raises BadInput for another format, a newer version or bad fields."""
        if not isinstance(data, dict) or present_mark(data.get("format")) != FORMAT:
            raise BadInput("this is not a case file", hint=f'its "format" must be "{FORMAT}"')
        if data.get("version") != VERSION:
            raise BadInput(
                f"case file version {data.get('version')!r} is not known", hint=f"this is version {VERSION}"
            )
        ranked, meta = data.get("ranked", True), data.get("meta", {})
        if not isinstance(ranked, bool) or not isinstance(meta, dict):
            raise BadInput('"ranked" is true or false, and "meta" an object', where="case file")
        rows = _rows(data, "locations", "case file")
        places = tuple(Location.from_json(row, f"location {n}") for n, row in enumerate(rows, 1))
        status = data.get("status")
        if not isinstance(status, str):
            raise BadInput('"status" is missing', where="case file")
        return cls(places, status, ranked, meta)  # type: ignore[arg-type]  # checked on creation

    @classmethod
    def loads(cls, text: str) -> CaseFile:
        """Read the JSON text. Raises BadInput."""
        try:
            return cls.from_json(json.loads(text))
        except ValueError as error:
            raise BadInput(f"this is not JSON: {error}", where="case file") from error

    def dumps(self) -> str:
        """The JSON text, the same for the same case."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _rows(data: Json, name: str, where: str) -> list[object]:
    rows = data.get(name, [])
    if not isinstance(rows, list):
        raise BadInput(f'"{name}" is a list', where=where)
    return rows


def _dependency(data: object, where: str) -> Dependency:
    if not isinstance(data, dict):
        raise BadInput("a dependency is a JSON object", where=where)
    return Dependency(
        _text(data, "path", where), _optional_text(data, "symbol", where), _text(data, "why", where)
    )


def _string(value: object, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f'"{name}" holds text', where=where)
    return value


def _text(data: Json, name: str, where: str) -> str:
    if name not in data:
        raise BadInput(f'"{name}" is missing', where=where)
    return _string(data[name], name, where)


def _optional_text(data: Json, name: str, where: str) -> str | None:
    return None if data.get(name) is None else _string(data[name], name, where)


def _whole(value: object, name: str, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput(f'"{name}" is a whole number', where=where)
    return value


def _number(value: object, name: str, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f'"{name}" is a finite number or null', where=where)
    return float(value)
