"""The belief as a confidence score, beside every critic's bare verdict and any score of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float, Shaped

from refork.errors import BadInput
from refork.stats import auroc
from refork.stats.results import Array, Interval, finite
from refork_methods.decide import brier, calibration_error
from refork_methods.gate.fit import beliefs, leave_one_out, refuse_fitted
from refork_methods.gate.model import CriticModel
from refork_methods.gate.records import Record, completed, labelled

# How well a confidence score says which candidates to reject: the prediction-rejection ratio.

#: The random score: its exact expectation, or the mean of seeded shuffles as lm-polygraph takes it.
Random: TypeAlias = Literal["exact", "monte-carlo"]

#: Equal scores: averaged over their orders, or in the order in which numpy happens to sort them.
Ties: TypeAlias = Literal["average", "sorted"]


@dataclass(frozen=True, slots=True)
class PRR:
    """The ratio ``value``, 1 as good as knowing the outcomes, 0 as good as chance; the areas it is made of.

    None where every candidate is right, or every one wrong: then there is nothing to order.
    """

    value: float | None
    area: float
    oracle: float
    random: float
    cases: int
    max_rejection: float
    method: str


def prr(
    score: Shaped[Array, "cases"],
    right: Shaped[Array, cases],
    max_rejection: float = 0.5,
    *,
    random: Random = "exact",
    ties: Ties = "average",
    iterations: int = 1000,
    seed: int = 42,
) -> PRR:
    """The prediction-rejection ratio of a confidence ``score`` (high: sure it is right).

    (A(score) - A(random)) / (A(oracle) - A(random)), where A is the mean quality of what is kept when the
    least sure 0, 1, ... of the cases are rejected, fewer than ``max_rejection`` of them. Qualities are scaled
    to [0, 1]. ``random="monte-carlo", ties="sorted"`` is lm-polygraph's PredictionRejectionArea with its
    normalize_metric, seed for seed. The defaults are ours: the exact expectation of a random score (its area
    is the mean quality), and tied scores averaged over their orders, so that no accident of sorting counts:
    beliefs are few distinct numbers.

    Raises: BadInput for unequal lengths, NaN, or a rejection that leaves nothing to reject.
    Source: arXiv:2606.24453 (normalised, rejection to 0.5); the ratio of lm-polygraph 0.7.
    """
    x, y = finite(score, "scores"), finite(right, "outcomes")
    if x.shape != y.shape:
        raise BadInput(f"{x.size} scores and {y.size} outcomes do not fit")
    if not 0 < max_rejection <= 1 or int(max_rejection * x.size) < 1:
        raise BadInput(
            f"rejecting at most {max_rejection:g} of {x.size} rejects nothing", hint="more cases, or up to 1"
        )
    if random not in ("exact", "monte-carlo") or ties not in ("average", "sorted"):
        raise BadInput(f"unknown random {random!r} or ties {ties!r}")
    quality = _scaled(y)
    area = rejection_area(-x, quality, max_rejection, ties)
    best = rejection_area(-quality, quality, max_rejection, ties)
    chance = (
        float(quality.mean()) if random == "exact" else _shuffled(quality, max_rejection, iterations, seed)
    )
    flat = bool(np.ptp(y) == 0)
    value = None if flat or best == chance else (area - chance) / (best - chance)
    return PRR(value, area, best, chance, int(x.size), max_rejection, f"random {random}, ties {ties}")


def rejection_area(
    uncertainty: Float[Array, "cases"], quality: Float[Array, cases], max_rejection: float, ties: Ties
) -> float:
    """Mean quality of what is kept, over rejection levels; the least uncertain are kept longest."""
    order = np.argsort(uncertainty)
    kept = quality[order]
    if ties == "average":
        _, group = np.unique(uncertainty, return_inverse=True)
        means = np.bincount(group, weights=quality) / np.bincount(group)
        kept = means[group][order]
    cases = kept.size
    rejected = int(max_rejection * cases)
    sums = np.cumsum(kept)[-rejected:]
    # Reversed, since lm-polygraph adds in this order and the numbers are to agree bit for bit.
    return float(np.sum((sums / np.arange(cases - rejected + 1, cases + 1))[::-1]) / rejected)


def _scaled(quality: Float[Array, "cases"]) -> Float[np.ndarray, "cases"]:
    low, high = float(quality.min()), float(quality.max())
    if np.isclose(low, high):
        # Equal qualities have no scale: they land on one half, and prr calls the ratio None.
        low, high = low - 1, high + 1
    return np.asarray((quality - low) / (high - low))


def _shuffled(quality: Float[Array, "cases"], max_rejection: float, iterations: int, seed: int) -> float:
    """The mean area of shuffled scores; numpy's legacy generator, for that is the one lm-polygraph seeds."""
    generator = np.random.RandomState(seed)
    scores = np.arange(quality.size)
    areas = []
    for _ in range(iterations):
        generator.shuffle(scores)
        areas.append(rejection_area(scores, quality, max_rejection, "sorted"))
    return float(np.mean(areas))


# The belief as a confidence score, beside every critic's bare verdict and any score of the user's own.


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
        _, found = leave_one_out(everything, critics=model.names, classes=max(1, len(model.classes)))
    else:
        refuse_fitted(model, kept.records)
        by = beliefs(model, everything)
        found = np.array([by[r.instance, r.candidate, r.step] for r in kept.records])
    right = np.array([float(bool(r.right)) for r in kept.records])

    def row(name: str, values: Float[Array, "cases"], *, chance: bool) -> Scored:
        some = min(right.sum(), right.size - right.sum()) >= 2
        return Scored(
            name,
            prr(values, right, max_rejection),
            auroc(values, right) if some else None,
            calibration_error(values, right) if chance else None,
            brier(values, right) if chance else None,
        )

    rows = [row("belief", found, chance=True)]
    for critic in model.names:
        said = [r.verdicts.get(critic) for r in kept.records]
        rows.append(row(critic, np.array([0.5 if v is None else float(v) for v in said]), chance=False))
    return Scores(kept.records, found, tuple(rows), kept.dropped)
