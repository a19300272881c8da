"""The record of a search for theories: rounds, verdicts, labels, slots, and scores that replay bit for bit.

Two theories stand in the slots; a round's verdict names the slot that loses and what takes it. Nothing here
is decided: labels, slots and leaderboards are derived from what was recorded, again at every reading.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np

from refork.errors import BadInput
from refork.plain import content_hash, from_json, to_json
from refork.types import Json
from refork_methods.theory.scores import aggregate_loss, distances, relative_scores

Ruling: TypeAlias = Literal["new_model", "new_theory"]
#: Labels of the two seeds. Source: arXiv:2606.26448 (code).
SEEDS: Final = ("pi_1", "pi_2")
# \Z, as $ also matches before a newline at the end.
_LABEL: Final = re.compile(r"pi_([1-9][0-9]*)(?:_([1-9][0-9]*))?\Z")


def next_label(labels: Sequence[str], target: str, ruling: Ruling) -> str:
    """Label of the theory that replaces ``target``: ``pi_(max + 1)``, or ``pi_N_k`` for a revised pi_N.

    A revision of a revision stays in the family of its number. ``labels`` are all ever given.

    Raises: BadInput for a label of another form, a target that is not among them, or another ruling.
    Source: arXiv:2606.26448 (code).
    """
    numbers = [_parsed(label) for label in labels]
    if target not in labels:
        raise BadInput(f"no theory is labelled {target!r}", hint=f"one of {', '.join(labels)}")
    if ruling == "new_theory":
        return f"pi_{max(family for family, _ in numbers) + 1}"
    if ruling != "new_model":
        raise BadInput(f"unknown ruling {ruling!r}", hint="new_model or new_theory")
    family = _parsed(target)[0]
    return f"pi_{family}_{max(one for number, one in numbers if number == family) + 1}"


def _parsed(label: str) -> tuple[int, int]:
    """Number of the family and of the revision, 0 for the first of it."""
    found = _LABEL.match(label)
    if found is None:
        raise BadInput(f"{label!r} is no label of a theory", hint="pi_1, pi_2, pi_2_1, ...")
    return int(found[1]), int(found[2] or 0)


@final
@dataclass(frozen=True, slots=True)
class MetricObservation:
    """One observation: the metric's value in people's data, and by each theory's simulation.

    ``values`` maps labels to values; None: simulated, and the metric was not defined. Theories of later
    rounds are filled in as they come.

    Raises: BadInput for a value that is not finite.
    """

    name: str
    metric: str
    real: float
    values: dict[str, float | None]

    def __post_init__(self) -> None:
        if not all(np.isfinite(x) for x in (self.real, *self.values.values()) if x is not None):
            raise BadInput(
                "a value is not finite", where=self.name, hint="None where a metric is not defined"
            )


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """Which slot (1 or 2) loses its theory, whether to a revision or to a new one. Raises BadInput."""

    ruling: Ruling
    target: int

    def __post_init__(self) -> None:
        if self.target not in (1, 2):
            raise BadInput(f"slot {self.target}; there are 1 and 2")


@final
@dataclass(frozen=True, slots=True)
class Round:
    """Observations and the verdict on them; None: the round is not finished."""

    seen: tuple[MetricObservation, ...]  # a key of recorded pools
    verdict: Verdict | None = None


@final
@dataclass(frozen=True, slots=True)
class Standing:
    """After a round: all labels, the two in the slots, the newest one, and leaderboard scores by label."""

    labels: tuple[str, ...]
    slots: tuple[str, str]
    newest: str
    scores: dict[str, float]


@final
@dataclass(frozen=True, slots=True)
class Pool:
    """All rounds of a search. Only the last may be unfinished.

    Raises: BadInput for an unfinished round before the last, a round without observations, or a theory
        that is missing in an observation's values.
    """

    rounds: tuple[Round, ...] = ()

    def __post_init__(self) -> None:
        for place, one in enumerate(self.rounds):
            if one.verdict is None and place + 1 < len(self.rounds):
                raise BadInput(f"round {place} has no verdict, and others follow")
            if not one.seen:
                raise BadInput(f"round {place} has no observation")
        labels = self.labels
        for seen in self.observations:
            if missing := [label for label in labels if label not in seen.values]:
                raise BadInput(f"{missing[0]} was never simulated on it", where=seen.name, hint="fill it in")

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of all theories ever admitted, in order."""
        return self._walk()[-1][0]

    @property
    def slots(self) -> tuple[str, str]:
        """Labels of the two theories that stand now."""
        return self._walk()[-1][1]

    @property
    def observations(self) -> tuple[MetricObservation, ...]:
        """All observations, in order."""
        return tuple(seen for one in self.rounds for seen in one.seen)

    @property
    def unfinished(self) -> Round | None:
        """The round to go on with, if the last has no verdict."""
        return self.rounds[-1] if self.rounds and self.rounds[-1].verdict is None else None

    def _walk(self) -> list[tuple[tuple[str, ...], tuple[str, str]]]:
        """Labels and slots at the start and after each finished round."""
        states: list[tuple[tuple[str, ...], tuple[str, str]]] = [(SEEDS, SEEDS)]
        for one in self.rounds:
            if one.verdict is not None:
                labels, slots = states[-1]
                new = next_label(labels, slots[one.verdict.target - 1], one.verdict.ruling)
                moved = (new, slots[1]) if one.verdict.target == 1 else (slots[0], new)
                states.append(((*labels, new), moved))
        return states

    def table(self, labels: Sequence[str], rounds: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Metric values [labels, observations] of the first rounds; NaN where a metric was not defined."""
        seen = [s for one in self.rounds[:rounds] for s in one.seen]
        rows = [[np.nan if (v := s.values[label]) is None else v for s in seen] for label in labels]
        return np.asarray(rows, dtype=np.float64)

    def replay(self) -> tuple[Standing, ...]:
        """The standing after each finished round, derived anew from what is recorded."""
        found = []
        # Each round is scored on what was known then, by the theories that stood then.
        for count, (labels, slots) in enumerate(self._walk()[1:], 1):
            real = np.asarray([s.real for one in self.rounds[:count] for s in one.seen])
            scores = relative_scores(distances(self.table(labels, count), real))
            by_label = {label: float(score) for label, score in zip(labels, scores, strict=True)}
            found.append(Standing(labels, slots, labels[-1], by_label))
        return tuple(found)

    def loss(self, candidate: Sequence[float | None]) -> float:
        """Aggregate loss of a candidate's values, one for each observation so far. Raises BadInput."""
        values = np.asarray([np.nan if v is None else v for v in candidate], dtype=np.float64)
        real = np.asarray([s.real for s in self.observations])
        stored = [[v for v in s.values.values() if v is not None] for s in self.observations]
        return aggregate_loss(values, real, stored)

    @property
    def digest(self) -> str:
        """Digest of all that is recorded."""
        return content_hash(self.to_json())

    def to_json(self) -> Json:
        """The record as plain JSON, with every digit."""
        data: Json = to_json(self)
        return data

    @classmethod
    def from_json(cls, data: Json, where: str | None = None) -> Pool:
        """Inverse of :meth:`to_json`. Raises BadInput naming the field."""
        return from_json(cls, data, where)
