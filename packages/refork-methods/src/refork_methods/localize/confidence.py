"""From a location's score to its chance of being right, learned on cases whose fix is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refork.decide import Calibration, fit_calibration
from refork.errors import BadInput
from refork_methods.localize.casefile import CaseFile
from refork_methods.localize.gold import Gold, gold_spans


def fit_confidence(cases: Sequence[CaseFile], diffs: Sequence[str | Gold]) -> Calibration:
    """The chance that a case's first location lies in a file of the fix, given its score.

    Use it on other cases than these. Raises: BadInput for unequal lengths, cases without scores, or too few
    cases of either outcome.
    """
    if len(cases) != len(diffs):
        raise BadInput(f"{len(cases)} cases and {len(diffs)} diffs do not fit")
    scores: list[float] = []
    right: list[float] = []
    for case, diff in zip(cases, diffs, strict=True):
        if not case.locations:
            continue
        first = case.locations[0]
        if first.score is None:
            raise BadInput("a location without a score cannot calibrate one", where=first.place())
        gold = gold_spans(diff) if isinstance(diff, str) else diff
        scores.append(first.score)
        right.append(float(first.path in gold.files))
    return fit_calibration(np.array(scores), np.array(right))
