"""From what a model answered, or from what a run saw, to a case file that stands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from refork.types import Json
from refork_methods.localize.casefile import LONGEST, CaseFile, Dependency, Location, Status, sound
from refork_methods.localize.facts import Span
from refork_methods.localize.snapshot import Snapshot, clean

#: What stands where the model left a text out: nothing is made up for it.
UNSAID = "Not said."
#: How a text begins that states no cause; the investigator without a model writes so, too.
NOT_ESTABLISHED = "Not established"
NO_CAUSE = f"{NOT_ESTABLISHED}: no diagnosis was given."
_TEXTS = ("explanation", "root_cause", "solution_idea")

ViewedSpans = Mapping[int, Sequence[Span]]


@final
@dataclass(frozen=True, slots=True)
class Read:
    """A case file as far as it stands; ``problems`` in words, ``incomplete`` texts counted."""

    case: CaseFile
    problems: tuple[str, ...]
    incomplete: int = 0
    unseen: int = 0


def case_from(
    data: Json, snapshot: Snapshot, viewed_spans: ViewedSpans, most: int, status: Status = "final"
) -> Read:
    """A model's case file made sound, with evidence from the turns that really showed the lines.

    A place that points at nothing goes; a missing text stands as "Not said."; turns that the model names and
    that did not show the lines are taken out; where it names none, all that did stand. Lines that no turn
    showed are kept, and flagged.
    """
    rows = data.get("locations")
    problems: list[str] = []
    places: list[Location] = []
    incomplete = 0
    for number, row in enumerate(rows if isinstance(rows, list) else [], 1):
        made = _location(row, snapshot)
        if isinstance(made, str):
            problems.append(f"location {number}: {made}")
            continue
        missing = [name for name in _TEXTS if getattr(made, name) == UNSAID]
        if missing:
            problems.append(f"location {number}: {', '.join(missing)} not said")
        incomplete += len(missing)
        proved = _proved(made, viewed_spans)
        wrong = sorted(set(made.evidence) - set(proved.evidence))
        if wrong:
            told = ", ".join(map(str, wrong))
            problems.append(f"location {number}: turn {told} did not show these lines")
        places.append(proved)
    if len(places) > most:
        problems.append(f"{len(places)} locations, of which the first {most} stand")
        places = places[:most]
    bare = CaseFile(tuple(places), status if places else "empty")
    case, faults = sound(bare, snapshot, viewed_spans)
    problems += [f"location {one.location + 1}: {one.words}" for one in faults]
    unseen = sum(one.fault == "unseen" for one in faults)
    return Read(case, tuple(dict.fromkeys(problems)), incomplete, unseen)


def from_seen(viewed_spans: ViewedSpans, viewed: Sequence[int], most: int, why: str) -> CaseFile:
    """The lines that a run looked at, the latest first: all that is left where no case file was given.

    ``viewed``: turns that opened a file; other turns' lines stand behind theirs. Nothing is claimed of them.
    """
    order = [*sorted(viewed, reverse=True), *sorted(set(viewed_spans) - set(viewed), reverse=True)]
    places: list[Location] = []
    for turn in order:
        for span in viewed_spans.get(turn, ()):
            end = min(span.end, span.start + LONGEST - 1)
            if any(one.path == span.path and span.start <= one.end and one.start <= end for one in places):
                continue
            places.append(
                Location(
                    span.path, span.start, end,
                    explanation=f"Looked at in turn {turn}; {why}.",
                    root_cause=NO_CAUSE,
                    solution_idea="None was given.",
                    evidence=tuple(
                    sorted(t for t, at in viewed_spans.items() if _touch(at, span.path, span.start, end))
                ),
                )
            )  # fmt: skip
    return CaseFile(tuple(places[:most]), "forced" if places else "empty")


def _location(row: object, snapshot: Snapshot) -> Location | str:
    """One location, read with tolerance for what has a single meaning; else what is wrong with it."""
    if not isinstance(row, dict):
        return "it is no object"
    path = row.get("path") or row.get("file")
    if not isinstance(path, str) or not path.strip():
        return "path is missing"
    name = clean(path.strip())
    if name not in snapshot:
        return f"there is no file {path!r}"
    start, end = _lines(row)
    length = snapshot.length(name)
    if start is None or not 1 <= start <= length:
        return f"start is {row.get('start')!r}; {name} has lines 1 to {length}"
    end = start if end is None else min(end, length)
    if end < start:
        return f"lines {start} to {end} are no span"
    why, cause, idea = (_text(row.get(key)) or UNSAID for key in _TEXTS)
    return Location(
        name, start, end, why, cause, idea,
        symbol=_text(row.get("symbol")) or None,
        dependencies=_dependencies(row.get("dependencies")),
        testing_impact=_texts(row.get("testing_impact")),
        confidence=_chance(row.get("confidence")),
        evidence=_turns(row.get("evidence")),
    )  # fmt: skip


def _lines(row: Json) -> tuple[int | None, int | None]:
    pair = row.get("lines")
    if isinstance(pair, list) and len(pair) == 2 and "start" not in row:
        return _int(pair[0]), _int(pair[1])
    start = row.get("start", row.get("start_line", row.get("line")))
    return _int(start), _int(row.get("end", row.get("end_line")))


def _proved(one: Location, seen: ViewedSpans) -> Location:
    showed = [turn for turn in sorted(seen) if _touch(seen[turn], one.path, one.start, one.end)]
    named = [turn for turn in one.evidence if turn in showed]
    return replace(one, evidence=tuple(sorted(set(named or showed))))


def _touch(spans: Sequence[Span], path: str, start: int, end: int) -> bool:
    return any(one.path == path and one.start <= end and start <= one.end for one in spans)


def _dependencies(rows: object) -> tuple[Dependency, ...]:
    found: list[Dependency] = []
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and isinstance(row.get("path"), str):
            path = clean(row["path"].strip())
            found.append(Dependency(path, _text(row.get("symbol")) or None, _text(row.get("why")) or UNSAID))
    return tuple(found)


def _texts(rows: object) -> tuple[str, ...]:
    if isinstance(rows, str):
        rows = [rows]
    return tuple(t for t in map(_text, rows) if t) if isinstance(rows, list) else ()


def _turns(rows: object) -> tuple[int, ...]:
    values = [_int(one) for one in rows] if isinstance(rows, list) else [_int(rows)]
    return tuple(one for one in values if one is not None)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _int(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and len(value) < 10 and value.isascii() and value.strip().isdecimal():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _chance(value: object) -> float | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if fits and 0 <= float(value) <= 1 else None  # type: ignore[arg-type]
