"""Readers of people's choices: a CSV of trials, and the JSON lines of published human data."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.types import Json
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.trials import Observation, Trials

#: What to do with people whose trials show pairs that their observation's design has not.
Foreign: TypeAlias = Literal["refuse", "drop", "move"]
COLUMNS = ("subject_id", "option_a_ratings", "option_b_ratings", "response")
_Pair: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


@final
@dataclass(frozen=True, slots=True)
class Read:
    """Observations that were read. ``foreign``: people of each whose trials are of another design.

    They were dropped or moved, as was asked; an observation without one is not named.
    """

    observations: tuple[Observation, ...]
    foreign: dict[str, int]


@final
@dataclass(frozen=True, slots=True)
class _Row:
    person: str
    pair: _Pair
    response: int


def read_human_choices(path: Path | str, *, foreign: Foreign = "drop") -> Read:
    """Observations of JSON lines (``.gz`` or plain): ``experiment`` lines, each followed by ``trial`` lines.

    A person with a trial that the design has not ran another experiment: ``drop`` leaves the person out,
    ``move`` counts the person in the one observation of the same round whose design has all their pairs (or
    leaves out, where there is none), ``refuse`` raises.

    Raises: BadInput for no such file, a malformed line, a field missing, or no trial left; it names the line.
    """
    if foreign not in ("refuse", "drop", "move"):
        raise BadInput(f"unknown treatment {foreign!r}", hint="refuse, drop or move")
    file = Path(path)
    designs: dict[tuple[int, int], CueExperiment] = {}
    rows: dict[tuple[int, int], list[_Row]] = {}
    for place, body in json_objects(_lines(file), str(file)):
        key = (_field(body, "round", place), _field(body, "observation", place))
        if body.get("kind") == "experiment":
            if key in designs:
                raise BadInput(f"round {key[0]}, observation {key[1]} is opened twice", where=place)
            designs[key], rows[key] = CueExperiment.from_json(body, place), []
        elif body.get("kind") == "trial":
            if key not in designs:
                raise BadInput("a trial stands before its experiment", where=place)
            person = str(_field(body, "subject_id", place))
            rows[key].append(_Row(person, _pair(body, "a", "b", place), _field(body, "response", place)))
        else:
            raise BadInput(f"a line of kind {body.get('kind')!r}", where=place, hint="experiment or trial")
    if not designs:
        raise BadInput("there is no experiment", where=str(file))
    return _observed(designs, rows, foreign, str(file))


def _observed(
    designs: dict[tuple[int, int], CueExperiment],
    rows: dict[tuple[int, int], list[_Row]],
    foreign: Foreign,
    where: str,
) -> Read:
    pairs = {key: set(_pairs(design)) for key, design in designs.items()}
    kept: dict[tuple[int, int], list[_Row]] = {key: [] for key in designs}
    strangers: Counter[str] = Counter()
    for key, found in rows.items():
        for person, trials in _by_person(found).items():
            shown = {row.pair for row in trials}
            if shown <= pairs[key]:
                kept[key] += trials
                continue
            if foreign == "refuse":
                raise BadInput(
                    f"person {person} saw a pair that the design has not", where=f"{where}, {_name(key)}"
                )
            strangers[_name(key)] += 1
            homes = [other for other in designs if other[0] == key[0] and shown <= pairs[other]]
            if foreign == "move" and len(homes) == 1:
                renamed = f"{person} of {_name(key)}"
                kept[homes[0]] += [_Row(renamed, row.pair, row.response) for row in trials]
    empty = [_name(key) for key, found in kept.items() if not found]
    if empty:
        raise BadInput(f"no trial is left of {', '.join(empty)}", where=where)
    read = [_observation(_name(key), designs[key], kept[key], where) for key in designs]
    return Read(tuple(read), dict(strangers))


def read_csv_trials(path: Path | str, *, validities: Sequence[float] | None = None) -> Read:
    """Observations of a CSV of trials in trial order, one row a choice.

    Columns ``subject_id``, ``option_a_ratings`` and ``option_b_ratings`` (JSON lists, or numbers with
    spaces), ``response`` (0 for A, 1 for B); ``validities`` (a list too) unless given here, and
    ``observation`` where there is more than one. Pairs are numbered as they first appear.

    Raises: BadInput for no such file, a column missing, a cell that does not fit, or two validities in one
        observation; it names the line.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the trials cannot be read: {error}", where=str(file)) from error
    table = csv.DictReader(text.splitlines())
    names = set(table.fieldnames or ())
    if missing := [name for name in COLUMNS if name not in names]:
        raise BadInput(f"no column {missing[0]!r}", where=str(file), hint=f"columns: {', '.join(COLUMNS)}")
    if validities is None and "validities" not in names:
        raise BadInput("no column 'validities'", where=str(file), hint="or give the validities of the cues")
    weights: dict[str, tuple[float, ...]] = {}
    rows: dict[str, list[_Row]] = {}
    for body in table:
        place = f"{file}:{table.line_num}"
        name = str(body.get("observation") or "trials")
        own = tuple(validities) if validities is not None else _cell(body, "validities", place)
        if weights.setdefault(name, own) != own:
            raise BadInput(f"observation {name!r} has other validities than before", where=place)
        a, b = (_cell(body, column, place) for column in COLUMNS[1:3])
        pair = _pair({"a": a, "b": b}, "a", "b", place)
        response = {"0": 0, "1": 1}.get((body["response"] or "").strip())
        if response is None:
            raise BadInput(f"the response is {body['response']!r}", where=place, hint="0 for A, 1 for B")
        rows.setdefault(name, []).append(_Row(body["subject_id"] or "", pair, response))
    if not rows:
        raise BadInput("there are no trials", where=str(file))
    found = []
    for name, of in rows.items():
        shown = list(dict.fromkeys(row.pair for row in of))
        design = _designed(weights[name], shown, f"{file}, observation {name!r}")
        found.append(_observation(name, design, of, str(file)))
    return Read(tuple(found), {})


def _designed(validities: Sequence[float], shown: Sequence[_Pair], where: str) -> CueExperiment:
    try:
        return CueExperiment.of(validities, [a for a, _ in shown], [b for _, b in shown])
    except BadInput as error:
        raise BadInput(error.what, where=where, hint=error.hint) from error


def _observation(name: str, design: CueExperiment, rows: Sequence[_Row], where: str) -> Observation:
    place = {pair: index for index, pair in reversed(list(enumerate(_pairs(design))))}
    people = {person: number for number, person in enumerate(dict.fromkeys(row.person for row in rows))}
    if bad := next((row for row in rows if row.response not in (0, 1)), None):
        raise BadInput(f"a response is {bad.response}", where=f"{where}, {name}", hint="0 for A, 1 for B")
    columns = np.asarray(
        [(people[row.person], place[row.pair], row.response) for row in rows], dtype=np.int64
    )
    return Observation(name, design, Trials(columns[:, 0], columns[:, 1], columns[:, 2]))


def _pairs(design: CueExperiment) -> list[_Pair]:
    return list(zip(design.a, design.b, strict=True))


def _by_person(rows: Iterable[_Row]) -> dict[str, list[_Row]]:
    found: dict[str, list[_Row]] = {}
    for row in rows:
        found.setdefault(row.person, []).append(row)
    return found


def _name(key: tuple[int, int]) -> str:
    return f"round {key[0]}, observation {key[1]}"


def _lines(file: Path) -> list[str]:
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        return data.decode("utf-8").splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(f"the choices cannot be read: {error}", where=str(file)) from error


def _field(body: Json, name: str, where: str) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"the field {name!r} is {value!r}, and no whole number", where=where)
    return value


def _pair(body: Json, a: str, b: str, where: str) -> _Pair:
    sides = []
    for name in (a, b):
        row = body.get(name)
        if not isinstance(row, list | tuple) or any(isinstance(x, bool | str) or x != int(x) for x in row):
            raise BadInput(f"the ratings {name!r} are {row!r}, and no list of whole numbers", where=where)
        sides.append(tuple(int(x) for x in row))
    return sides[0], sides[1]


def _cell(body: dict[str, Any], name: str, where: str) -> tuple[float, ...]:
    text = (body[name] or "").strip()
    try:
        values = json.loads(text) if text.startswith("[") else [float(part) for part in text.split()]
        found = tuple(float(x) for x in values)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{name!r} is {text!r}, and no list of numbers", where=where) from error
    if not found:
        raise BadInput(f"{name!r} is empty", where=where)
    return found
