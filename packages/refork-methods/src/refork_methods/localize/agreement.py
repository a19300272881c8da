"""Whether several runs on one issue agree: a verifier that needs no fix to compare with.

Source: arXiv:2606.24820 reports a verifier over several traces and not how it scores; agreement on the place
plus similarity of the stated cause, and both formulas, are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.types import Json
from refork_methods.localize.casefile import CaseFile, Location
from refork_methods.localize.synthesis import NOT_ESTABLISHED, UNSAID
from refork_methods.localize.terms import query_words

VERSION = "1"


@final
@dataclass(frozen=True, slots=True)
class Agreement:
    """How far each run's first place and cause are those of the others.

    ``locations`` and ``causes``: pairwise, in 0 .. 1. ``best``: the run that agrees most with the others, the
    earliest of equals; ``score`` is how much, and belongs to its case.
    """

    locations: Float[np.ndarray, "runs runs"]
    causes: Float[np.ndarray, "runs runs"]

    @property
    def by_run(self) -> Float[np.ndarray, "runs"]:
        """Each run's mean agreement with the others, place and cause counting half each."""
        # The diagonal is each run with itself, and says nothing.
        both = (self.locations + self.causes) / 2
        count = len(both)
        mean: Float[np.ndarray, "runs"] = (both.sum(axis=1) - np.diag(both)) / (count - 1)
        return mean

    @property
    def best(self) -> int:
        """The run that agrees most."""
        return int(np.argmax(self.by_run))

    @property
    def score(self) -> float:
        """The best run's mean agreement: 0 where no two runs share anything, 1 where all say the same."""
        return float(self.by_run[self.best])

    def to_json(self) -> Json:
        """The score, the best run and each run's agreement."""
        return {"score": self.score, "best": self.best, "by_run": self.by_run.tolist()}


def agreement(cases: Sequence[CaseFile]) -> Agreement:
    """Compare case files of one issue by their first places. An empty case agrees with nothing.

    Raises: BadInput for fewer than two cases.
    """
    if len(cases) < 2:
        raise BadInput("agreement needs at least two runs", hint="draw more")
    first = [case.locations[0] if case.locations else None for case in cases]
    return Agreement(_pairs(first, place_agreement), _pairs(first, cause_similarity))


def place_agreement(one: Location, other: Location) -> float:
    """0 for different files; else half, and half of the lines in both as a share of the shorter span."""
    if one.path != other.path:
        return 0.0
    both = min(one.end, other.end) - max(one.start, other.start) + 1
    return 0.5 + 0.5 * max(both, 0) / min(one.lines, other.lines)


def cause_similarity(one: Location, other: Location) -> float:
    """Words in both causes over words in either; 0 where a cause is not stated.

    Words are compared without inflection, and the commonest of English and of issues left out.
    """
    first, second = _cause(one), _cause(other)
    return len(first & second) / len(first | second) if first and second else 0.0


def _cause(one: Location) -> frozenset[str]:
    text = one.root_cause
    if text == UNSAID or text.startswith(NOT_ESTABLISHED):
        return frozenset()
    return frozenset(query_words(text))


def _pairs(
    places: Sequence[Location | None], compare: Callable[[Location, Location], float]
) -> Float[np.ndarray, "runs runs"]:
    table = np.zeros((len(places), len(places)))
    for row, one in enumerate(places):
        for column, other in enumerate(places):
            if one is not None and other is not None:
                table[row, column] = compare(one, other)
    return table
