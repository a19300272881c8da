"""People's choices: CSVs of trials, read and written, and the JSON lines of published human data."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np

from refork.errors import BadInput
from refork.jsonl import json_objects, read_utf8
from refork.types import Json
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.gambles.experiment import GambleExperiment
from refork_methods.theory.trials import Observation, Trials

#: What to do with people whose trials show pairs that their observation's design has not.
Foreign: TypeAlias = Literal["refuse", "drop", "move"]
#: Columns of the options; those of gambles stand in place of ratings.
CUES, GAMBLES = ("option_a_ratings", "option_b_ratings"), ("option_a", "option_b")
#: Columns that may be empty or missing, and hold a number otherwise.
_MEASURED = ("rt", "away_s", "bot")
_Pair: TypeAlias = tuple[Any, Any]


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


def read_choices(path: Path, *, foreign: Foreign = "drop", validities: Sequence[float] | None = None) -> Read:
    """Published JSON lines (``.jsonl``, ``.jsonl.gz``), or a CSV of trials. Raises BadInput as those two."""
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        if validities is not None:
            raise BadInput("the file names its validities itself", where=str(path))
        return read_human_choices(path, foreign=foreign)
    return read_csv_trials(path, validities=validities)


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
    rows: dict[tuple[int, int], dict[str, list[_Row]]] = {}
    for place, body in json_objects(_lines(file), str(file)):
        key = (_field(body, "round", place), _field(body, "observation", place))
        if body.get("kind") == "experiment":
            if key in designs:
                raise BadInput(f"round {key[0]}, observation {key[1]} is opened twice", where=place)
            designs[key], rows[key] = CueExperiment.from_json(body, place), {}
        elif body.get("kind") == "trial":
            if key not in designs:
                raise BadInput("a trial stands before its experiment", where=place)
            person = str(_field(body, "subject_id", place))
            pair = (_ratings(body, "a", place), _ratings(body, "b", place))
            rows[key].setdefault(person, []).append(_Row(person, pair, _field(body, "response", place)))
        else:
            raise BadInput(f"a line of kind {body.get('kind')!r}", where=place, hint="experiment or trial")
    if not designs:
        raise BadInput("there is no experiment", where=str(file))
    return _at_home(designs, rows, foreign, str(file))


def _at_home(
    designs: dict[tuple[int, int], CueExperiment],
    rows: dict[tuple[int, int], dict[str, list[_Row]]],
    foreign: Foreign,
    where: str,
) -> Read:
    """Each person's trials with the design that has their pairs."""
    pairs = {key: set(_pairs(design)) for key, design in designs.items()}
    kept: dict[tuple[int, int], list[_Row]] = {key: [] for key in designs}
    strangers: Counter[str] = Counter()
    for key, people in rows.items():
        for person, trials in people.items():
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
                # A number names one person within one observation only: in the new home it may be
                # somebody else's.
                renamed = f"{person} of {_name(key)}"
                kept[homes[0]] += [_Row(renamed, row.pair, row.response) for row in trials]
    if empty := [_name(key) for key, found in kept.items() if not found]:
        raise BadInput(f"no trial is left of {', '.join(empty)}", where=where)
    read = [_observation(_name(key), designs[key], kept[key], where) for key in designs]
    return Read(tuple(read), dict(strangers))


def read_rows(path: Path) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    """(columns, (place, row) of every trial) of a CSV; responses and measured columns are numbers.

    Raises: BadInput for no such file, a column missing, or a cell that does not fit; it names the line.
    """
    table = csv.DictReader(read_utf8(path).splitlines())
    names = list(table.fieldnames or ())
    options = GAMBLES if GAMBLES[0] in names else CUES
    wanted = ("subject_id", *options, "response")
    if missing := [name for name in wanted if name not in names]:
        raise BadInput(f"no column {missing[0]!r}", where=str(path), hint=f"columns: {', '.join(wanted)}")
    rows = []
    for body in table:
        place = f"{path}:{table.line_num}"
        row = {name: (body.get(name) or "").strip() for name in names}
        if not row["subject_id"]:
            raise BadInput("the row does not say whose choice it is", where=place, hint="subject_id")
        if row["response"] not in ("0", "1"):
            raise BadInput(f"the response is {row['response']!r}", where=place, hint="0 for A, 1 for B")
        for name in _MEASURED:
            if row.get(name) and not _is_number(row[name]):
                raise BadInput(f"{name!r} is {row[name]!r}, and no number", where=place)
        rows.append((place, row))
    if not rows:
        raise BadInput("there are no trials", where=str(path))
    return names, rows


def read_csv_trials(path: Path | str, *, validities: Sequence[float] | None = None) -> Read:
    """Observations of a CSV of trials in trial order, one row a choice.

    Columns ``subject_id``, ``response`` (0 for A, 1 for B), and ``observation`` where there is more than one.
    Options are ``option_a_ratings`` and ``option_b_ratings`` (JSON lists, or numbers with spaces) with
    ``validities`` (a list too) unless given here; or ``option_a`` and ``option_b``, JSON lists of [outcome,
    chance]. Pairs are numbered as they first appear.

    Raises: BadInput as :func:`read_rows`, or for two validities in one observation.
    """
    file = Path(path)
    names, rows = read_rows(file)
    gambles = GAMBLES[0] in names
    if not gambles and validities is None and "validities" not in names:
        raise BadInput("no column 'validities'", where=str(file), hint="or give the validities of the cues")
    weights: dict[str, tuple[float, ...]] = {}
    found: dict[str, list[_Row]] = {}
    for place, row in rows:
        name = row.get("observation") or "trials"
        if gambles:
            pair: _Pair = (_gamble(row, GAMBLES[0], place), _gamble(row, GAMBLES[1], place))
        else:
            own = tuple(validities) if validities is not None else _cell(row, "validities", place)
            if weights.setdefault(name, own) != own:
                raise BadInput(f"observation {name!r} has other validities than before", where=place)
            told = {column: _cell(row, column, place) for column in CUES}
            pair = (_ratings(told, CUES[0], place), _ratings(told, CUES[1], place))
        found.setdefault(name, []).append(_Row(row["subject_id"], pair, int(row["response"])))
    read = []
    for name, own_rows in found.items():
        pairs = list(dict.fromkeys(row.pair for row in own_rows))
        where = f"{file}, observation {name!r}"
        try:
            design: Experiment = (
                GambleExperiment.of(pairs) if gambles
                else CueExperiment.of(weights[name], [a for a, _ in pairs], [b for _, b in pairs])
            )  # fmt: skip
        except BadInput as error:
            raise BadInput(error.what, where=where, hint=error.hint) from error
        read.append(_observation(name, design, own_rows, where))
    return Read(tuple(read), {})


def choice_row(experiment: Experiment, index: int) -> dict[str, str]:
    """The columns of a CSV that say which pair was shown."""
    pair = experiment.stimulus(index)
    names = CUES if isinstance(experiment, CueExperiment) else GAMBLES
    row = {names[0]: json.dumps(pair["a"]), names[1]: json.dumps(pair["b"])}
    return row | ({"validities": json.dumps(pair["validities"])} if names is CUES else {})


def write_csv_trials(path: Path, observation: Observation) -> None:
    """Write an observation so that :func:`read_csv_trials` reads it."""
    trials, design = observation.trials, observation.experiment
    shown = [choice_row(design, index) for index in range(design.stimuli)]
    columns = zip(trials.person.tolist(), trials.stimulus.tolist(), trials.response.tolist(), strict=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, ["subject_id", *shown[0], "response"])
        table.writeheader()
        for person, index, response in columns:
            table.writerow({"subject_id": person, **shown[index], "response": response})


def _observation(name: str, design: Experiment, rows: Sequence[_Row], where: str) -> Observation:
    # Reversed, so that a pair that the design lists twice has the first of its numbers.
    place = {pair: index for index, pair in reversed(list(enumerate(_pairs(design))))}
    people = {person: number for number, person in enumerate(dict.fromkeys(row.person for row in rows))}
    if bad := next((row for row in rows if row.response not in (0, 1)), None):
        raise BadInput(f"a response is {bad.response}", where=f"{where}, {name}", hint="0 for A, 1 for B")
    columns = np.asarray(
        [(people[row.person], place[row.pair], row.response) for row in rows], dtype=np.int64
    )
    return Observation(name, design, Trials(columns[:, 0], columns[:, 1], columns[:, 2]))


def _pairs(design: Any) -> list[_Pair]:
    return list(zip(design.a, design.b, strict=True))


def _name(key: tuple[int, int]) -> str:
    return f"round {key[0]}, observation {key[1]}"


def _lines(file: Path) -> list[str]:
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        return data.decode("utf-8").splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(f"the choices cannot be read: {error}", where=str(file)) from error


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _field(body: Json, name: str, where: str) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"the field {name!r} is {value!r}, and no whole number", where=where)
    return value


def _is_whole(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def _ratings(body: Mapping[str, Any], name: str, where: str) -> tuple[int, ...]:
    row = body.get(name)
    if not isinstance(row, list | tuple) or not all(_is_whole(x) for x in row):
        raise BadInput(f"the ratings {name!r} are {row!r}, and no list of whole numbers", where=where)
    return tuple(int(x) for x in row)


def _cell(row: Mapping[str, str], name: str, where: str) -> tuple[float, ...]:
    text = row[name]
    try:
        found = tuple(float(x) for x in (json.loads(text) if text.startswith("[") else text.split()))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{name!r} is {text!r}, and no list of numbers", where=where) from error
    if not found:
        raise BadInput(f"{name!r} is empty", where=where)
    return found


def _gamble(row: Mapping[str, str], name: str, where: str) -> tuple[tuple[float, float], ...]:
    try:
        return tuple((float(x), float(p)) for x, p in json.loads(row[name]))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{name!r} is {row[name]!r}, and no list of [outcome, chance]", where=where) from error
