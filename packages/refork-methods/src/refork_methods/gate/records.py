"""Calibration records: one candidate, what every critic said of it, and whether the oracle found it right."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from refork.errors import BadInput
from refork_methods.gate.model import VERIFY

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
    candidate is wrong and fails every critic.

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

    def __post_init__(self) -> None:
        if not self.instance or not self.candidate:
            raise BadInput("a record needs the names of its instance and its candidate")
        if self.step is not None and self.step < 0:
            raise BadInput(f"step {self.step}; they are counted from 0", where=self.place)
        self._check_values()
        oracle = self.tests.get(VERIFY, frozenset())
        for critic, names in self.tests.items():
            shared = sorted(oracle & names) if critic != VERIFY else []
            if shared:
                raise BadInput(
                    f"{len(shared)} tests of critic {critic!r} are also in the oracle's suite: "
                    f"{', '.join(shared[:3])}",
                    where=self.place,
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
                raise BadInput(f"{what} is {value!r}; it must be true, false or None", where=self.place)
        for name, cost in self.costs.items():
            if not math.isfinite(cost) or cost < 0:
                raise BadInput(f"the cost of {name!r} is {cost!r}; it must be 0 or more", where=self.place)

    @property
    def place(self) -> str:
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
            raise BadInput("this candidate is recorded twice", where=record.place)
        seen.add(key)
    names = critic_names(found)
    return tuple(replace(r, verdicts=dict.fromkeys(names, False)) if r.empty else r for r in found)


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
        example = next(iter(known.values())).place if known else "none"
        raise BadInput(
            "no candidate of the records is in the report with the outcomes",
            hint=f"instance and candidate must be called the same; the report has {example}",
        )
    return completed(made)


def _with_outcome(record: Record, other: Record) -> Record:
    if None not in (record.right, other.right) and record.right != other.right:
        raise BadInput("two outcomes of this candidate contradict each other", where=record.place)
    right = other.right if record.right is None else record.right
    return replace(
        record,
        right=right,
        missing=None if right is not None else other.missing,
        verdicts={**record.verdicts, **other.verdicts},
        costs={**record.costs, **other.costs},
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
    order = np.random.default_rng(seed).permutation(len(names))
    mine = {names[i] for i in order[:count]}
    return tuple(r for r in records if r.instance in mine), tuple(
        r for r in records if r.instance not in mine
    )


def refuse_overlap(fit: Iterable[str], test: Iterable[str]) -> None:
    """Refuse instances that are on both sides: what was fitted on them would be tested on them."""
    both = sorted(set(fit) & set(test))
    if both:
        raise BadInput(
            f"{len(both)} instances are in both the fit and the test records: {', '.join(both[:3])}",
            hint="split by instance: refork gate fit --share 0.75 --test FILE",
        )
