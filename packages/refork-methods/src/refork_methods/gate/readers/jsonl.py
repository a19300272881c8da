"""Calibration records as JSON lines: one candidate per line.

    {"instance": "i1", "candidate": "0", "right": true, "verdicts": {"test": true, "review": 0.8},
     "costs": {"verify": {"seconds": 610}, "test": {"seconds": 4}}, "patch": "...",
     "tests": {"test": ["t1"], "verify": ["t2"]}}

``right`` null with an ``oracle_error`` is the oracle's failure. A verdict null, or {"error": ...}, is a
critic's failed call. ``step`` numbers refinements. ``patch`` gives the digest, and says whether it is empty.
The rows of the paper's release (instance_id, patch_id, L0_syntax, ..., Y, cost_usd) are read as well.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.types import Json
from refork_methods.gate.model import Unit
from refork_methods.gate.prices import Rates
from refork_methods.gate.records import NO_OUTCOME, ORACLE_ERROR, Record, completed

_INSTANCE: Final = ("instance", "instance_id")
_CANDIDATE: Final = ("candidate", "patch_id")
_OUTCOME: Final = ("right", "Y")
_ARTIFACT: Final = ("patch", "model_patch", "diff", "code")
_WORDS: Final = {"pass": True, "fail": False}


def read_jsonl(
    path: Path, thresholds: Mapping[str, float] | None = None, rates: Rates | None = None
) -> tuple[Record, ...]:
    """Records of a file; a critic that gives a score passes where it reaches its threshold.

    A cost is a number in the unit of the prices, or amounts of seconds, tokens and money that ``rates``
    convert; without ``rates`` amounts are left out, as is ``cost_usd`` without a rate of money.

    Raises: BadInput naming the line, also for a score without a threshold, a cost without a rate, and a
        threshold for a critic that no record has.
    """
    limits = dict(thresholds or {})
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"this file cannot be read: {error}", where=str(path)) from error
    made = completed(parse_record(body, limits, rates, at) for at, body in json_objects(lines, str(path)))
    if not made:
        raise BadInput("there are no records", where=str(path))
    unknown = sorted(set(limits) - {name for record in made for name in record.verdicts})
    if unknown:
        raise BadInput(f"there is no critic {unknown[0]!r} to set a threshold for", where=str(path))
    return made


def parse_record(body: Json, thresholds: Mapping[str, float], rates: Rates | None, where: str) -> Record:
    """One line as a record. Raises BadInput naming ``where``."""
    instance = _first(body, _INSTANCE)
    if instance is None:
        raise BadInput("this line names no instance", where=where, hint='"instance": "..."')
    candidate = _first(body, _CANDIDATE)
    right, missing = _outcome(body, where)
    patch = _first(body, _ARTIFACT)
    digest = body.get("artifact")
    if isinstance(patch, str) and digest is None:
        digest = hashlib.sha256(patch.encode()).hexdigest()
    step = body.get("step")
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        raise BadInput(f"the step is {step!r}; it must be a whole number", where=where)
    try:
        return Record(
            str(instance),
            "0" if candidate is None else str(candidate),
            right,
            {name: _verdict(value, thresholds.get(name), name, where) for name, value in _checks(body)},
            _costs(body, rates),
            step,
            None if digest is None else str(digest),
            missing,
            {name: frozenset(map(str, names)) for name, names in (body.get("tests") or {}).items()},
            bool(body.get("empty")) or (isinstance(patch, str) and not patch.strip()),
        )
    except BadInput as error:
        raise BadInput(error.what, where=error.where or where, hint=error.hint) from error
    except (TypeError, AttributeError) as error:
        raise BadInput(f"this line is no record: {error}", where=where) from error


def _first(body: Json, names: Iterable[str]) -> Any:
    return next((body[name] for name in names if body.get(name) is not None), None)


def _outcome(body: Json, where: str) -> tuple[bool | None, str | None]:
    if body.get("oracle_error"):
        return None, ORACLE_ERROR
    found = _first(body, _OUTCOME)
    if found is None:
        return None, str(body.get("missing") or NO_OUTCOME)
    if isinstance(found, bool) or (isinstance(found, int) and found in (0, 1)):
        return bool(found), None
    raise BadInput(f"the outcome is {found!r}; it must be true, false or null", where=where)


def _checks(body: Json) -> Iterable[tuple[str, Any]]:
    if "verdicts" in body:
        return list(body["verdicts"].items())
    return [(name, value) for name, value in body.items() if re.fullmatch(r"L\d_\w+", name)]


def _verdict(value: Any, threshold: float | None, name: str, where: str) -> bool | None:
    if isinstance(value, Mapping):
        value = None if value.get("error") else value.get("passed", value.get("score"))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and threshold is not None:
        if math.isnan(value):
            raise BadInput(f"critic {name!r} gave NaN", where=where, hint="null, where its call failed")
        return value >= threshold
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    raise BadInput(
        f"critic {name!r} gave {value!r}, which is neither pass nor fail",
        where=where,
        hint=f"a score needs a threshold: --threshold {name}=0.5",
    )


def _costs(body: Json, rates: Rates | None) -> dict[str, float]:
    made = {}
    for name, cost in (body.get("costs") or {}).items():
        if isinstance(cost, Mapping):
            if rates is not None:
                made[name] = rates.value(cost)
        elif cost is not None:
            made[name] = _amount(cost, name)
    if body.get("cost_usd") is not None and rates is not None and rates.known("money"):
        made.setdefault("generate", rates.value({"money": _amount(body["cost_usd"], "cost_usd")}))
    return made


def _amount(cost: Any, name: str) -> float:
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise BadInput(f"the cost of {name!r} is {cost!r}; it must be a number")
    return float(cost)


def record_json(record: Record) -> Json:
    """A record as an object that :func:`read_jsonl` reads back; what is empty is left out."""
    optional: Json = {
        "costs": dict(record.costs),
        "step": record.step,
        "artifact": record.artifact,
        "missing": record.missing,
        "oracle_error": record.missing == ORACLE_ERROR,
        "tests": {name: sorted(names) for name, names in record.tests.items()},
        "empty": record.empty,
    }
    return {
        "instance": record.instance,
        "candidate": record.candidate,
        "right": record.right,
        "verdicts": dict(record.verdicts),
        **{name: value for name, value in optional.items() if value or (name == "step" and value == 0)},
    }


def record_line(record: Record, unit: Unit = "utility", source: str | None = None) -> str:
    """A record as a line: costs in seconds, tokens or money say so, plain ones are in the prices' unit."""
    body = record_json(record)
    if unit != "utility" and "costs" in body:
        body["costs"] = {name: {unit: cost} for name, cost in body["costs"].items()}
    return json.dumps(body if source is None else body | {"source": source}) + "\n"


def write_jsonl(
    path: Path, records: Iterable[Record], unit: Unit = "utility", source: str | None = None
) -> None:
    """Write records, whole or not at all, as :func:`record_line` does."""
    part = path.with_name(path.name + ".part")
    part.write_text("".join(record_line(r, unit, source) for r in records), encoding="utf-8")
    part.replace(path)
