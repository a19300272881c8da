"""The belief as a confidence score, beside every critic's bare verdict and any score of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from refork.decide import brier, calibration_error
from refork.errors import BadInput
from refork.stats import auroc
from refork.stats.results import Array, Interval
from refork_methods.gate.fit import beliefs, leave_one_out, refuse_fitted
from refork_methods.gate.model import CriticModel
from refork_methods.gate.prr import PRR, Random, Ties, prr
from refork_methods.gate.records import Record, completed, labelled


@final
@dataclass(frozen=True, slots=True)
class Scored:
    """One score on all candidates; ``ece`` and ``brier`` are None where it is no chance."""

    name: str
    prr: PRR
    auroc: Interval | None
    ece: float | None
    brier: float | None


@final
@dataclass(frozen=True, slots=True)
class Scores:
    """Candidates with an outcome, the belief in each, and the scores beside each other, the belief first."""

    records: tuple[Record, ...]
    beliefs: Float[Array, "cases"]
    rows: tuple[Scored, ...]
    dropped: Mapping[str, int]


def score(
    model: CriticModel,
    records: Sequence[Record],
    *,
    without_own: bool = False,
    max_rejection: float = 0.5,
    random: Random = "exact",
    ties: Ties = "average",
) -> Scores:
    """How well beliefs say which candidates are right.

    ``without_own`` fits the critics anew for every instance without its own records; else the records must be
    of instances that the model was not fitted on. Of a critic, an unknown verdict scores one half.

    Raises: BadInput for instances that the model was fitted on, or too few candidates.
    """
    everything = completed(records)
    kept = labelled(everything)
    if not kept.records:
        raise BadInput("no candidate has an outcome", hint=f"dropped: {dict(kept.dropped)}")
    if without_own:
        _, found = leave_one_out(everything, critics=model.names)
    else:
        refuse_fitted(model, kept.records)
        by = beliefs(model, everything)
        found = np.array([by[r.instance, r.candidate, r.step] for r in kept.records])
    right = np.array([float(bool(r.right)) for r in kept.records])

    def row(name: str, values: Float[Array, "cases"], *, chance: bool) -> Scored:
        some = min(right.sum(), right.size - right.sum()) >= 2
        return Scored(
            name,
            prr(values, right, max_rejection, random=random, ties=ties),
            auroc(values, right) if some else None,
            calibration_error(values, right) if chance else None,
            brier(values, right) if chance else None,
        )

    rows = [row("belief", found, chance=True)]
    for critic in model.names:
        said = [r.verdicts.get(critic) for r in kept.records]
        rows.append(row(critic, np.array([0.5 if v is None else float(v) for v in said]), chance=False))
    return Scores(kept.records, found, tuple(rows), kept.dropped)
