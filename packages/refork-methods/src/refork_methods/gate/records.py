"""Calibration records: candidates with what every critic and the oracle said, their prices, as JSON lines."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from refork.errors import BadInput
from refork.jsonl import json_objects, read_utf8, write_whole
from refork.types import Json
from refork_methods.gate.model import GENERATE, UNITS, VERIFY, Prices, Unit

# Calibration records: one candidate, what every critic said of it, and whether the oracle found it right.

#: Why a candidate has no outcome. Neither is ever counted as wrong.
NO_OUTCOME, ORACLE_ERROR = "no outcome", "oracle error"


@final
@dataclass(frozen=True, slots=True)
class Record:
    """One candidate of one instance.

    ``right``: the oracle's outcome; None where there is none, and ``missing`` says why. ``verdicts``: pass or
    fail of every critic, None where its call failed. ``costs``: what each action cost, by critic's name,
    ``generate`` and ``verify``, in the unit of the prices. ``step``: which refinement of this draw (0: the
    draw itself); None where the candidates are draws of their own. ``artifact``: SHA-256 of the candidate.
    ``tests``: names of the tests behind a critic, and behind the oracle under ``verify``. An ``empty``
    candidate is wrong and fails every critic. ``amounts``: what a cost was measured in, such as seconds and
    tokens, whether or not rates made a cost of it; it goes with the record into every file.

    Raises: BadInput for what is no outcome, verdict or cost, and for a test that a critic shares with the
        oracle: its verdict would leak the outcome.
    """

    instance: str
    candidate: str
    right: bool | None
    verdicts: Mapping[str, bool | None]
    costs: Mapping[str, float] = field(default_factory=dict)
    step: int | None = None
    artifact: str | None = None
    missing: str | None = None
    tests: Mapping[str, frozenset[str]] = field(default_factory=dict)
    empty: bool = False
    amounts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.instance or not self.candidate:
            raise BadInput("a record needs the names of its instance and its candidate")
        if self.step is not None and self.step < 0:
            raise BadInput(f"step {self.step}; they are counted from 0", where=self.location)
        self._check_values()
        oracle = self.tests.get(VERIFY, frozenset())
        for critic, names in self.tests.items():
            shared = sorted(oracle & names) if critic != VERIFY else []
            if shared:
                raise BadInput(
                    f"{len(shared)} tests of critic {critic!r} are also in the oracle's suite: "
                    f"{', '.join(shared[:3])}",
                    where=self.location,
                    hint="take them out of one of the two; else the critic looks better than it is",
                )
        if self.empty:
            object.__setattr__(self, "right", False)
            object.__setattr__(self, "verdicts", dict.fromkeys(self.verdicts, False))
        if self.right is not None:
            object.__setattr__(self, "missing", None)
        elif self.missing is None:
            object.__setattr__(self, "missing", NO_OUTCOME)

    def _check_values(self) -> None:
        for what, value in (("the outcome", self.right), *self.verdicts.items()):
            if value is not None and not isinstance(value, bool):
                raise BadInput(f"{what} is {value!r}; it must be true, false or None", where=self.location)
        for name, cost in self.costs.items():
            if not math.isfinite(cost) or cost < 0:
                raise BadInput(f"the cost of {name!r} is {cost!r}; it must be 0 or more", where=self.location)
        for name, parts in self.amounts.items():
            for kind, amount in parts.items():
                if kind not in UNITS or not math.isfinite(amount) or amount < 0:
                    raise BadInput(
                        f"the cost of {name!r} is {amount!r} of {kind!r}",
                        where=self.location,
                        hint=f"0 or more of {', '.join(UNITS)}",
                    )

    @property
    def unconverted(self) -> frozenset[str]:
        """Actions whose cost is known in amounts only, which no rate has made a cost of."""
        return frozenset(self.amounts) - frozenset(self.costs)

    @property
    def location(self) -> str:
        """Instance, candidate and step, for messages."""
        return f"{self.instance}/{self.candidate}" + ("" if self.step is None else f"/{self.step}")

    @property
    def fresh(self) -> bool:
        """Whether this is a draw, not the refinement of one."""
        return not self.step


@final
@dataclass(frozen=True, slots=True)
class Labelled:
    """The records that have an outcome, and how many were dropped for what reason."""

    records: tuple[Record, ...]
    dropped: Mapping[str, int]


def labelled(records: Iterable[Record]) -> Labelled:
    """Drop and count the candidates without an outcome: an oracle's error says nothing about a candidate."""
    found = tuple(records)
    lost = Counter(str(record.missing) for record in found if record.right is None)
    return Labelled(tuple(r for r in found if r.right is not None), dict(sorted(lost.items())))


def critic_names(records: Iterable[Record]) -> tuple[str, ...]:
    """The critics that any record knows, in the order in which they first appear."""
    return tuple(dict.fromkeys(name for record in records for name in record.verdicts))


def completed(records: Iterable[Record]) -> tuple[Record, ...]:
    """The records with an empty candidate failing every critic there is; each candidate only once.

    Raises: BadInput for a candidate that is there twice.
    """
    found = tuple(records)
    seen: set[tuple[str, str, int | None]] = set()
    for record in found:
        key = (record.instance, record.candidate, record.step)
        if key in seen:
            raise BadInput("this candidate is recorded twice", where=record.location)
        seen.add(key)
    names = critic_names(found)
    # Only here are all critics known: a record by itself knows just those that it was given.
    return tuple(replace(r, verdicts=dict.fromkeys(names, False)) if r.empty else r for r in found)


def chains(records: Iterable[Record]) -> list[tuple[Record, ...]]:
    """The candidates of every draw, by step; draws in the order in which they first appear."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        found.setdefault((record.instance, record.candidate), []).append(record)
    return [tuple(sorted(chain, key=lambda r: r.step or 0)) for chain in found.values()]


def joined(records: Sequence[Record], outcomes: Iterable[Record]) -> tuple[Record, ...]:
    """The records with the outcomes of another report on the same candidates.

    A candidate whose outcome is not there keeps none. Costs, tests and emptiness are put together.

    Raises: BadInput where no candidate is in both, both state an outcome and they differ, or tests leak.
    """
    known = {(o.instance, o.candidate, o.step): o for o in completed(outcomes)}
    made = []
    matched = 0
    for record in completed(records):
        other = known.get((record.instance, record.candidate, record.step))
        matched += other is not None
        made.append(record if other is None else _with_outcome(record, other))
    if not matched:
        example = next(iter(known.values())).location if known else "none"
        raise BadInput(
            "no candidate of the records is in the report with the outcomes",
            hint=f"instance and candidate must be called the same; the report has {example}",
        )
    return completed(made)


def _with_outcome(record: Record, other: Record) -> Record:
    if None not in (record.right, other.right) and record.right != other.right:
        raise BadInput("two outcomes of this candidate contradict each other", where=record.location)
    right = other.right if record.right is None else record.right
    return replace(
        record,
        right=right,
        missing=None if right is not None else other.missing,
        verdicts={**record.verdicts, **other.verdicts},
        costs={n: c for n, c in record.costs.items() if n not in other.unconverted} | dict(other.costs),
        amounts={n: a for n, a in record.amounts.items() if n not in other.costs} | dict(other.amounts),
        tests={**record.tests, **other.tests},
        artifact=record.artifact or other.artifact,
        empty=record.empty or other.empty,
    )


def split(
    records: Sequence[Record], share: float = 0.75, seed: int = 0
) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """Records to fit on (``share`` of the instances) and to test on; all candidates of one stay together.

    Raises: BadInput for a share outside (0, 1), or too few instances for both sides.
    """
    if not 0 < share < 1:
        raise BadInput(f"the share is {share!r}; it must lie strictly between 0 and 1")
    names = sorted({record.instance for record in records})
    count = round(share * len(names))
    if not 0 < count < len(names):
        raise BadInput(f"{len(names)} instances cannot be split {share:g} to {1 - share:g}")
    # By instance, never by candidate: refinements and draws of one instance are alike.
    order = np.random.default_rng(seed).permutation(len(names))
    mine = {names[i] for i in order[:count]}
    return tuple(r for r in records if r.instance in mine), tuple(
        r for r in records if r.instance not in mine
    )


# What actions cost: measured or given, in one unit; converted only by a stated rate. Unknown is not 0.

#: What can be measured of a call.
KINDS: Final[tuple[Unit, ...]] = ("seconds", "tokens", "money")


@final
@dataclass(frozen=True, slots=True)
class Rates:
    """What one second, one token and one unit of money are worth in ``unit``; None: not known.

    The unit's own rate is 1.

    Raises: BadInput for an unknown unit, a negative or non-finite rate, or the unit's own rate not 1.
    """

    unit: Unit = "utility"
    seconds: float | None = None
    tokens: float | None = None
    money: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BadInput(f"unknown unit {self.unit!r}", hint=f"one of {', '.join(UNITS)}")
        for kind in KINDS:
            rate = getattr(self, kind)
            if rate is not None and (not math.isfinite(rate) or rate < 0):
                raise BadInput(f"the rate of {kind} is {rate!r}; it must be a finite amount of 0 or more")
            if kind == self.unit and rate not in (None, 1):
                raise BadInput(f"one of {kind} is one of {kind}, not {rate!r}")

    def known(self, kind: str) -> bool:
        """Whether amounts of this kind can be converted."""
        return kind == self.unit or (kind in KINDS and getattr(self, kind) is not None)

    def rate(self, kind: str) -> float:
        """What one of a kind is worth. Raises BadInput where no rate is given."""
        if kind == self.unit:
            return 1.0
        found: float | None = getattr(self, kind) if kind in KINDS else None
        if found is None:
            raise BadInput(
                f"there is no rate from {kind} to {self.unit}, and a cost is never taken to be 0",
                hint=f"--rate {kind}=..., or --unit {kind}"
                if kind in KINDS
                else f"one of {', '.join(KINDS)}",
            )
        return found

    def value(self, amounts: Mapping[str, float]) -> float:
        """The worth of amounts by kind, added up. Raises BadInput for a kind without a rate, or none."""
        if not amounts:
            raise BadInput("a cost without any amount is unknown, not 0")
        return sum(amount * self.rate(kind) for kind, amount in amounts.items())


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """Mean cost of an action over the calls whose cost is known, ``calls`` of them."""

    mean: float
    calls: int


def measured(records: Iterable[Record]) -> dict[str, Measured]:
    """The mean cost of every action.

    An action whose cost was never recorded is not there, nor one of which some calls are known in amounts
    only: the mean of the others would stand for those as well.
    """
    found: dict[str, list[float]] = {}
    unconverted: set[str] = set()
    for record in records:
        unconverted |= record.unconverted
        for name, cost in record.costs.items():
            found.setdefault(name, []).append(cost)
    return {
        name: Measured(math.fsum(costs) / len(costs), len(costs))
        for name, costs in found.items()
        if name not in unconverted
    }


def price_of(name: str, given: Mapping[str, float], measured: Mapping[str, Measured]) -> float:
    """The price of an action: the given one, else the mean measured. Raises BadInput where it is unknown."""
    if name in given:
        return given[name]
    if name in measured:
        return measured[name].mean
    raise BadInput(
        f"the price of {name!r} is unknown, and unknown is not 0",
        hint=f"give it (--price {name}=...), or record what its calls cost; amounts such as seconds need "
        "--rate seconds=... or --unit seconds",
    )


def prices_from(
    records: Iterable[Record],
    reward: float,
    given: Mapping[str, float] | None = None,
    *,
    ship_loss: float | None = None,
    unit: Unit = "utility",
) -> Prices:
    """Prices of verifying and generating as measured, with those ``given`` in their place.

    Raises: BadInput where either is neither given nor recorded, or an amount is negative.
    """
    seen, named = measured(records), dict(given or {})
    verify, generate = (price_of(name, named, seen) for name in ("verify", "generate"))
    return Prices(reward, verify, generate, ship_loss, unit)


# Calibration records as JSON lines: one candidate per line.
#
#     {"instance": "i1", "candidate": "0", "right": true, "verdicts": {"test": true, "review": 0.8},
#      "costs": {"verify": {"seconds": 610}, "test": {"seconds": 4}}, "patch": "...",
#      "tests": {"test": ["t1"], "verify": ["t2"]}}
#
# ``right`` null with an ``oracle_error`` is the oracle's failure. A verdict null, or {"error": ...}, is a
# critic's failed call. ``step`` numbers refinements. ``patch`` gives the digest, and says if it is empty.
# The rows of the paper's release (instance_id, patch_id, L0_syntax, ..., Y, cost_usd) are read as well.

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
    convert; without ``rates`` they stay amounts, as does ``cost_usd`` without a rate of money.

    Raises: BadInput naming the line, also for a score without a threshold, a cost without a rate, and a
        threshold for a critic that no record has.
    """
    limits = dict(thresholds or {})
    lines = read_utf8(path).split("\n")
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
    costs, measured_in = _costs(body, rates, where)
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        raise BadInput(f"the step is {step!r}; it must be a whole number", where=where)
    try:
        return Record(
            str(instance),
            "0" if candidate is None else str(candidate),
            right,
            {name: _verdict(value, thresholds.get(name), name, where) for name, value in _checks(body)},
            costs,
            step,
            None if digest is None else str(digest),
            missing,
            {name: frozenset(map(str, names)) for name, names in (body.get("tests") or {}).items()},
            bool(body.get("empty")) or (isinstance(patch, str) and not patch.strip()),
            measured_in,
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
    # With a threshold 0 and 1 are scores like any other; without one they are verdicts, see below.
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


def _costs(
    body: Json, rates: Rates | None, where: str
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Costs in the unit of the prices, and what they were measured in where that is another."""
    given = body.get("costs") or {}
    if not isinstance(given, Mapping):
        raise BadInput(f"the costs are {given!r}; they go by the names of actions", where=where)
    made: dict[str, float] = {}
    parts: dict[str, dict[str, float]] = {}
    try:
        for name, cost in given.items():
            if isinstance(cost, Mapping):
                parts[name] = {kind: _amount(one, f"{name} {kind}") for kind, one in cost.items()}
                if rates is not None or not cost:
                    made[name] = (rates or Rates()).value(parts[name])
            elif cost is not None:
                made[name] = _amount(cost, name)
        # Both would be the price of one draw: what is named among the costs goes before.
        if body.get("cost_usd") is not None and GENERATE not in {*made, *parts}:
            parts[GENERATE] = {"money": _amount(body["cost_usd"], "cost_usd")}
            if rates is not None and rates.known("money"):
                made[GENERATE] = rates.value(parts[GENERATE])
    except BadInput as error:
        raise BadInput(error.what, where=error.where or where, hint=error.hint) from error
    return made, parts


def _amount(cost: Any, name: str) -> float:
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise BadInput(f"the cost of {name!r} is {cost!r}; it must be a number")
    return float(cost)


def record_json(record: Record) -> Json:
    """A record as an object that :func:`read_jsonl` reads back; what is empty is left out."""
    optional: Json = {
        "costs": {**record.costs, **{name: dict(parts) for name, parts in record.amounts.items()}},
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
        body["costs"] = {
            name: cost if isinstance(cost, Mapping) else {unit: cost} for name, cost in body["costs"].items()
        }
    return json.dumps(body if source is None else body | {"source": source}) + "\n"


def write_jsonl(
    path: Path, records: Iterable[Record], unit: Unit = "utility", source: str | None = None
) -> None:
    """Write records, whole or not at all, as :func:`record_line` does."""
    write_whole(path, "".join(record_line(r, unit, source) for r in records))
