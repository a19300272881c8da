"""What is wrong with a case file, and the part of it that stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

from refork.types import Json
from refork_methods.localize.casefile import LONGEST, CaseFile, Location
from refork_methods.localize.facts import Span
from refork_methods.localize.snapshot import Snapshot

Fault: TypeAlias = Literal[
    "absent", "range", "long", "empty text", "confidence", "evidence", "unseen", "duplicate"
]
#: Faults that leave nothing to point at. The others are flaws of a place that exists.
FATAL: frozenset[Fault] = frozenset({"absent", "range"})
_TEXTS = ("explanation", "root_cause", "solution_idea")


@final
@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of one location (``location`` counts from 0), in the field named, said in words."""

    location: int
    field: str
    fault: Fault
    words: str

    @property
    def fatal(self) -> bool:
        """Whether the location points at nothing."""
        return self.fault in FATAL

    def to_json(self) -> Json:
        """Plain fields."""
        return {"location": self.location, "field": self.field, "fault": self.fault, "words": self.words}


def case_problems(
    case: CaseFile, snapshot: Snapshot, seen: Mapping[int, Iterable[Span]] | None = None
) -> list[Problem]:
    """Every fault of a case, in the order of its locations.

    ``seen``: the spans that each turn really showed. With it, a location whose evidence turns did not show
    any of its lines is "unseen"; without it, sight is not judged.
    """
    shown = None if seen is None else {turn: tuple(spans) for turn, spans in seen.items()}
    found: list[Problem] = []
    first: dict[tuple[str, int, int], int] = {}
    for number, one in enumerate(case.locations):
        found += [Problem(number, *fault) for fault in _place_faults(one, snapshot)]
        found += [Problem(number, *fault) for fault in _text_faults(one, snapshot)]
        if shown is not None:
            found += [Problem(number, *fault) for fault in _sight_faults(one, shown)]
        key = (one.path, one.start, one.end)
        if key in first:
            words = f"the same lines as location {first[key] + 1}"
            found.append(Problem(number, "start", "duplicate", words))
        first.setdefault(key, number)
    return found


_Found: TypeAlias = tuple[str, Fault, str]


def _place_faults(one: Location, snapshot: Snapshot) -> list[_Found]:
    if one.path not in snapshot:
        return [("path", "absent", f"there is no file {one.path!r} in the snapshot")]
    length = snapshot.length(one.path)
    if not 1 <= one.start <= one.end <= length:
        return [("start", "range", f"lines {one.start}-{one.end} do not lie in 1-{length}")]
    if one.lines > LONGEST:
        return [("end", "long", f"{one.lines} lines are more than {LONGEST}")]
    return []


def _text_faults(one: Location, snapshot: Snapshot) -> list[_Found]:
    found: list[_Found] = [
        (name, "empty text", f"{name} says nothing") for name in _TEXTS if not getattr(one, name).strip()
    ]
    for other in one.dependencies:
        if other.path not in snapshot:
            found.append(("dependencies", "absent", f"there is no file {other.path!r} in the snapshot"))
        if not other.why.strip():
            found.append(("dependencies", "empty text", f"why {other.path} matters is not said"))
    if any(not text.strip() for text in one.testing_impact):
        found.append(("testing_impact", "empty text", "an entry says nothing"))
    if one.confidence is not None and not 0 <= one.confidence <= 1:
        found.append(("confidence", "confidence", f"{one.confidence} is no chance"))
    return found


def _sight_faults(one: Location, shown: Mapping[int, tuple[Span, ...]]) -> list[_Found]:
    found: list[_Found] = []
    for turn in one.evidence:
        if turn not in shown:
            found.append(("evidence", "evidence", f"there was no turn {turn}"))
        elif not _touches(one, shown[turn]):
            found.append(("evidence", "evidence", f"turn {turn} did not show these lines"))
    if not any(_touches(one, shown.get(turn, ())) for turn in one.evidence):
        found.append(("evidence", "unseen", "no turn of its evidence showed any of these lines"))
    return found


def _touches(one: Location, spans: Iterable[Span]) -> bool:
    return any(span.path == one.path and span.start <= one.end and one.start <= span.end for span in spans)


def sound(
    case: CaseFile, snapshot: Snapshot, seen: Mapping[int, Iterable[Span]] | None = None
) -> tuple[CaseFile, list[Problem]]:
    """The part of a case that stands, and all that was wrong with it.

    Locations that point at nothing go, with dependencies on absent files; spans beyond the limit keep their
    first lines; duplicates are merged into the first. Empty texts and unseen lines stay and are
    reported: what a producer did not say cannot be made up. Nothing left: status ``empty``.
    """
    problems = case_problems(case, snapshot, seen)
    gone = {one.location for one in problems if one.fatal and one.field != "dependencies"}
    kept: list[Location] = []
    for number, one in enumerate(case.locations):
        if number in gone:
            continue
        inside = tuple(other for other in one.dependencies if other.path in snapshot)
        chance = one.confidence if one.confidence is not None and 0 <= one.confidence <= 1 else None
        end = min(one.end, one.start + LONGEST - 1)
        kept.append(replace(one, end=end, dependencies=inside, confidence=chance))
    merged = merge_duplicates(kept)
    status = case.status if merged else "empty"
    return replace(case, locations=merged, status=status), problems


def merge_duplicates(locations: Iterable[Location]) -> tuple[Location, ...]:
    """Locations of the same lines as one, at the place of the first: its texts, everybody's evidence."""
    kept: dict[tuple[str, int, int], Location] = {}
    for one in locations:
        key = (one.path, one.start, one.end)
        kept[key] = one if key not in kept else _merged(kept[key], one)
    return tuple(kept.values())


def _merged(first: Location, second: Location) -> Location:
    chances = [one.confidence for one in (first, second) if one.confidence is not None]
    texts = {
        name: getattr(first, name) if getattr(first, name).strip() else getattr(second, name)
        for name in _TEXTS
    }
    return replace(
        first,
        **texts,
        symbol=first.symbol or second.symbol,
        dependencies=tuple(dict.fromkeys((*first.dependencies, *second.dependencies))),
        testing_impact=tuple(dict.fromkeys((*first.testing_impact, *second.testing_impact))),
        evidence=tuple(sorted({*first.evidence, *second.evidence})),
        confidence=max(chances) if chances else None,
    )
