"""The case file: where an issue's cause is thought to lie, and why; checked, and written in three forms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, final, get_args
from urllib.parse import quote

from pydantic import AllowInfNan, Strict

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork.settings import present_mark
from refork.types import Json
from refork_methods.localize.facts import Span
from refork_methods.localize.snapshot import Snapshot

# The case file: where an issue's cause is thought to lie, why, and from what evidence.

FORMAT = "refork case file"
VERSION = 1
#: The longest span of lines that still counts as a place.
LONGEST = 300

Status: TypeAlias = Literal["final", "forced", "empty"]
# Strict: a model that writes "3" or true for a line has not said which line it means.
_Whole: TypeAlias = Annotated[int, Strict()]
_Number: TypeAlias = Annotated[float, Strict(), AllowInfNan(False)]


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
    start: _Whole
    end: _Whole
    explanation: str
    root_cause: str
    solution_idea: str
    symbol: str | None = None
    dependencies: tuple[Dependency, ...] = ()
    testing_impact: tuple[str, ...] = ()
    confidence: _Number | None = None
    evidence: tuple[_Whole, ...] = ()
    score: _Number | None = None

    @property
    def lines(self) -> int:
        """How many lines the span has."""
        return self.end - self.start + 1

    def location(self) -> str:
        """``path:start-end``."""
        return f"{self.path}:{self.start}-{self.end}"

    def to_json(self) -> Json:
        """Plain fields."""
        told: Json = to_json(self)
        return told


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
    ranked: Annotated[bool, Strict()] = True
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

    @property
    def files(self) -> tuple[str, ...]:
        """The files, best first: those of the locations, then what ``meta["files"]`` names beside them."""
        more = self.meta.get("files", ())
        return tuple(dict.fromkeys([*self.paths, *(one for one in more if isinstance(one, str))]))

    @property
    def functions(self) -> tuple[tuple[str, str], ...]:
        """(path, qualified name), best first: ``meta["functions"]``, where there is none the locations'."""
        told = [one.split("::", 1) for one in self.meta.get("functions", ()) if isinstance(one, str)]
        named = [(one[0], one[1]) for one in told if len(one) == 2]
        places = [(one.path, one.symbol) for one in self.locations if one.symbol is not None]
        return tuple(dict.fromkeys(named or places))

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
        return from_json(cls, {"status": None, "locations": ()} | data, "case file")

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


# What is wrong with a case file, and the part of it that stands.

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
        """Whether the location points at nothing: it stands where only what it depends on is absent."""
        return self.fault in FATAL and self.field != "dependencies"

    def to_json(self) -> Json:
        """Plain fields."""
        return {"location": self.location, "field": self.field, "fault": self.fault, "words": self.words}


def case_problems(
    case: CaseFile, snapshot: Snapshot, read_spans: Mapping[int, Iterable[Span]] | None = None
) -> list[Problem]:
    """Every fault of a case, in the order of its locations.

    ``read_spans``: the spans that each turn really showed. With it, a location whose evidence turns did not
    show any of its lines is "unseen"; without it, sight is not judged.
    """
    shown = None if read_spans is None else {turn: tuple(spans) for turn, spans in read_spans.items()}
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
    case: CaseFile, snapshot: Snapshot, read_spans: Mapping[int, Iterable[Span]] | None = None
) -> tuple[CaseFile, list[Problem]]:
    """The part of a case that stands, and all that was wrong with it.

    Locations that point at nothing go, with dependencies on absent files; spans beyond the limit keep their
    first lines; duplicates are merged into the first. Empty texts and unseen lines stay and are
    reported: what a producer did not say cannot be made up. Nothing left: status ``empty``.
    """
    problems = case_problems(case, snapshot, read_spans)
    gone = {one.location for one in problems if one.fatal}
    kept: list[Location] = []
    for number, one in enumerate(case.locations):
        if number in gone:
            continue
        inside = tuple(other for other in one.dependencies if other.path in snapshot)
        chance = one.confidence if one.confidence is not None and 0 <= one.confidence <= 1 else None
        end = min(one.end, one.start + LONGEST - 1)
        kept.append(replace(one, end=end, dependencies=inside, confidence=chance))
    # After long spans were cut, which can make two of them the same.
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


# A case file as Markdown, ready to paste before a repair agent's task.

_HEADS = {
    "final": "Likely places to change, most likely first. Check each before you edit.",
    "forced": "The search ran out of turns; these places are from what it saw. Check each before you edit.",
    "empty": "No place was found. Localize the fault yourself.",
}
#: Longer spans are shown by their first lines.
_SHOWN = 40


def case_markdown(
    case: CaseFile,
    snapshot: Snapshot | None = None,
    problems: Iterable[Problem] = (),
    *,
    title: str = "Case file",
) -> str:
    """The case as Markdown; with a snapshot, each place with its numbered lines; problems as warnings."""
    told = [f"# {title}", "", _HEADS[case.status], ""]
    flagged: dict[int, list[str]] = {}
    for problem in problems:
        flagged.setdefault(problem.location, []).append(problem.words)
    for number, one in enumerate(case.locations):
        told += _location(number, one, snapshot, flagged.get(number, []))
    more = [path for path in case.files if path not in case.paths]
    if more:
        told += ["## Further files", "", *(f"- `{_line(path)}`" for path in more), ""]
    if case.meta.get("functions"):
        told += ["## Functions", ""]
        told += [f"- `{_line(path)}`, `{_line(name)}`" for path, name in case.functions] + [""]
    notes = [str(note) for note in case.meta.get("notes", [])]
    if notes:
        told += ["## Notes", "", *(f"- {_line(note)}" for note in notes), ""]
    return "\n".join(told).rstrip() + "\n"


def _location(number: int, one: Location, snapshot: Snapshot | None, flags: list[str]) -> list[str]:
    name = f", `{_line(one.symbol)}`" if one.symbol else ""
    sure = "not calibrated" if one.confidence is None else f"{one.confidence:.2f}"
    told = [f"## {number + 1}. `{one.location()}`{name}", ""]
    told += [f"> Warning: {_line(flag)}" for flag in flags]
    told += [""] if flags else []
    told += [
        f"- **Why here:** {_line(one.explanation)}",
        f"- **Root cause:** {_line(one.root_cause)}",
        f"- **Solution idea:** {_line(one.solution_idea)}",
    ]
    if one.dependencies:
        told.append("- **Depends on this:**")
        for other in one.dependencies:
            what = f"`{other.path}`" + (f" `{_line(other.symbol)}`" if other.symbol else "")
            told.append(f"    - {what}: {_line(other.why)}")
    if one.testing_impact:
        told += ["- **Tests:**", *(f"    - {_line(text)}" for text in one.testing_impact)]
    told += [f"- **Chance of being right:** {sure}", ""]
    if snapshot is not None and one.path in snapshot:
        told += [*_code(one, snapshot), ""]
    return told


def _code(one: Location, snapshot: Snapshot) -> list[str]:
    lines = snapshot.lines(one.path)[one.start - 1 : one.end]
    shown = lines[:_SHOWN]
    body = [f"{n:>5}  {text}" for n, text in enumerate(shown, one.start)]
    if len(lines) > len(shown):
        body.append(f"       ... {len(lines) - len(shown)} more lines")
    ticks = [len(run) for run in re.findall(r"`{3,}", "\n".join(body))]
    fence = "`" * max(3, max(ticks, default=2) + 1)  # text of the file cannot end the block
    return [f"{fence}text", *body, fence]


def _line(text: str) -> str:
    """One line: a text of the case cannot begin a heading or a block of its own."""
    return " ".join(text.split())


# A case file as SARIF 2.1.0, which editors and code scanners show in place.

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULE = "refork/suspected-fault"


def case_sarif(case: CaseFile) -> Json:
    """A SARIF log with one run and one result per location, in rank order.

    Results are of level "note": a suspicion that somebody has to look at. ``rank`` (0 to 100) is set only
    where the case holds a calibrated chance.
    """
    rule = {
        "id": RULE,
        "name": "SuspectedFault",
        "shortDescription": {"text": "Lines where an issue's cause may lie."},
        "defaultConfiguration": {"level": "note"},
    }
    run: Json = {
        "tool": {"driver": {"name": "Refork", "semanticVersion": version("refork"), "rules": [rule]}},
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The root of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": case.status != "forced"}],
        "results": [_result(number, one) for number, one in enumerate(case.locations, 1)],
        "properties": {"status": case.status, "ranked": case.ranked},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(number: int, one: Location) -> Json:
    text = f"{number}. {one.explanation} Root cause: {one.root_cause} Idea: {one.solution_idea}"
    result: Json = {
        "ruleId": RULE,
        "ruleIndex": 0,
        "level": "note",
        "message": {"text": text},
        "locations": [_sarif_location(one)],
        "properties": {"order": number, "testingImpact": list(one.testing_impact)},
    }
    if one.confidence is not None:
        result["rank"] = round(100 * one.confidence, 4)
    if one.dependencies:
        result["relatedLocations"] = [
            {
                "id": n,
                "physicalLocation": {"artifactLocation": _artifact(other.path)},
                "message": {"text": f"{other.symbol}: {other.why}" if other.symbol else other.why},
            }
            for n, other in enumerate(one.dependencies, 1)
        ]
    return result


def _sarif_location(one: Location) -> Json:
    place: Json = {
        "physicalLocation": {
            "artifactLocation": _artifact(one.path),
            "region": {"startLine": one.start, "endLine": one.end},
        }
    }
    if one.symbol:
        place["logicalLocations"] = [{"fullyQualifiedName": one.symbol}]
    return place


def _artifact(path: str) -> Json:
    return {"uri": quote(path), "uriBaseId": "SRCROOT"}


# Case files on disk, each whole or not at all.


def write_case(
    case: CaseFile,
    snapshot: Snapshot,
    *,
    out: Path | None = None,
    markdown: Path | None = None,
    sarif: Path | None = None,
) -> None:
    """Write the asked-for forms of a case: JSON, Markdown with the lines themselves, SARIF.

    Raises: BadInput where a file cannot be written.
    """
    if out is not None:
        replace_text(out, case.dumps())
    if markdown is not None:
        replace_text(markdown, case_markdown(case, snapshot, case_problems(case, snapshot)))
    if sarif is not None:
        replace_text(
            sarif, json.dumps(case_sarif(case), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        )


def replace_text(file: Path, text: str) -> None:
    """Write a text whole or not at all. Raises BadInput where the file cannot be written."""
    # In the same folder: a rename replaces a file at once on one file system only.
    half = file.with_name(f".{file.name}.part")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(file)
    except OSError as error:
        raise BadInput(f"the file cannot be written: {error.strerror}", where=str(file)) from error
    finally:
        half.unlink(missing_ok=True)
