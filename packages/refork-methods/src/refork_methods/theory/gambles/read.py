"""Reader of choices between gambles from a CSV of trials."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from refork.errors import BadInput
from refork_methods.theory.gambles.experiment import Gamble, GambleExperiment
from refork_methods.theory.trials import Observation, Trials

COLUMNS: Final = ("subject_id", "option_a", "option_b", "response")


def read_csv_gambles(path: Path | str) -> tuple[Observation, ...]:
    """Observations of a CSV of trials in trial order, one row a choice.

    Columns ``subject_id``, ``option_a`` and ``option_b`` (JSON lists of [outcome, chance]), ``response`` (0
    for A, 1 for B), and ``observation`` where there is more than one. Pairs are numbered as they appear.

    Raises: BadInput for no such file, a column missing, or a cell that does not fit; it names the line.
    """
    file = Path(path)
    try:
        table = csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the trials cannot be read: {error}", where=str(file)) from error
    if missing := [name for name in COLUMNS if name not in (table.fieldnames or ())]:
        raise BadInput(f"no column {missing[0]!r}", where=str(file), hint=f"columns: {', '.join(COLUMNS)}")
    rows: dict[str, list[tuple[str, tuple[Gamble, Gamble], int]]] = {}
    for body in table:
        place = f"{file}:{table.line_num}"
        pair = (_gamble(body, "option_a", place), _gamble(body, "option_b", place))
        response = {"0": 0, "1": 1}.get((body["response"] or "").strip())
        if response is None:
            raise BadInput(f"the response is {body['response']!r}", where=place, hint="0 for A, 1 for B")
        name = str(body.get("observation") or "trials")
        rows.setdefault(name, []).append((body["subject_id"] or "", pair, response))
    if not rows:
        raise BadInput("there are no trials", where=str(file))
    return tuple(_observation(name, found, f"{file}, observation {name!r}") for name, found in rows.items())


def is_gambles(path: Path) -> bool:
    """Whether a file's first line names the columns of gambles."""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            return {"option_a", "option_b"} <= set(next(csv.reader([stream.readline()]), []))
    except (OSError, UnicodeDecodeError):
        return False


def _observation(name: str, rows: list[tuple[str, tuple[Gamble, Gamble], int]], where: str) -> Observation:
    pairs = {pair: place for place, pair in enumerate(dict.fromkeys(pair for _, pair, _ in rows))}
    people = {person: number for number, person in enumerate(dict.fromkeys(person for person, _, _ in rows))}
    try:
        design = GambleExperiment.of(list(pairs))
    except BadInput as error:
        raise BadInput(error.what, where=where, hint=error.hint) from error
    columns = np.asarray([(people[person], pairs[pair], response) for person, pair, response in rows])
    return Observation(name, design, Trials(columns[:, 0], columns[:, 1], columns[:, 2]))


def _gamble(body: Mapping[str, Any], name: str, where: str) -> Gamble:
    try:
        return tuple((float(x), float(p)) for x, p in json.loads(body[name] or ""))
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"{name!r} is {body[name]!r}, and no list of [outcome, chance]", where=where
        ) from error
