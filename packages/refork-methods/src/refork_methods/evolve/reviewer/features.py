"""What a reviewer sees of a report: five cheap numbers, none of which is the truth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Float

from refork.stats.results import Array
from refork_methods.evolve.reviewer.readings import FINDINGS
from refork_methods.evolve.reviewer.texts import MARKERS, Report

#: Words (their logarithm); marker words per line; lines set in bold; whether one finding is right; how many
#: of some more are. All but the first are shares.
FEATURES: Final = ("length", "markers", "layout", "glance", "spots")
#: Findings that a reviewer has the time to hold against the log.
SPOTS: Final = 5
_WORD = re.compile(r"[a-z]+")
_MARKERS = frozenset(word.lower() for word in MARKERS)


def features(report: Report) -> Float[Array, "features"]:
    """The features of one report, in the order of :data:`FEATURES`.

    ``spots`` is the share of :data:`SPOTS` findings, picked by the text's digest, that the report states
    rightly; ``glance`` is the first of them alone. The other findings are not looked at.
    """
    lines = [line for line in report.text.lower().splitlines() if line]
    # SPOTS steps of this length stay within one round of the findings: none is looked at twice.
    start, step = int(report.digest[:8], 16), FINDINGS // SPOTS
    looked = [report.states((start + step * i) % FINDINGS) for i in range(SPOTS)]
    every = _WORD.findall(report.text.lower())
    rows = max(1, len(lines))
    return np.array([
        np.log(max(1, len(every))),
        sum(word in _MARKERS for word in every) / rows,
        sum(line.startswith("- **") for line in lines) / rows,
        float(looked[0]),
        sum(looked) / SPOTS,
    ])  # fmt: skip


def feature_table(reports: Sequence[Report]) -> Float[Array, "reports features"]:
    """The features of several reports, a row each."""
    rows = [features(report) for report in reports]
    return np.stack(rows) if rows else np.zeros((0, len(FEATURES)))
