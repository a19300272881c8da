"""How well a confidence score says which candidates to reject: the prediction-rejection ratio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float, Shaped

from refork.errors import BadInput
from refork.stats.results import Array, finite

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
    return float(np.sum((sums / np.arange(cases - rejected + 1, cases + 1))[::-1]) / rejected)


def _scaled(quality: Float[Array, "cases"]) -> Float[np.ndarray, "cases"]:
    low, high = float(quality.min()), float(quality.max())
    if np.isclose(low, high):
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
