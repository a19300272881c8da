"""Scores of theories over observations: the loss of a candidate, and the leaderboard, which is relative.

A leaderboard score compares theories with one another: admitting one moves all. Keep an absolute
measure beside it (:mod:`refork_methods.theory.predictive`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.stats.results import Array


def aggregate_loss(
    values: Float[Array, "observations"],
    real: Float[Array, "observations"],
    stored: Sequence[Sequence[float]],
) -> float:
    """Mean over observations of |value - real| / spread; NaN in ``values`` counts as 1.

    ``stored`` are the predictions of all theories so far, a list for each observation. The spread is the
    range of real, candidate and stored values; where it is 0 the plain distance counts. Since the candidate
    takes part in the spread, a term never exceeds 1.

    Raises: BadInput for unequal lengths, no observation, or a real value that is not finite.
    Source: arXiv:2606.26448 (code).
    """
    v, r = np.asarray(values, dtype=np.float64), np.asarray(real, dtype=np.float64)
    if v.shape != r.shape or v.ndim != 1 or len(stored) != v.size or not v.size:
        raise BadInput("values, real values and stored predictions must be of one or more observations alike")
    if not np.isfinite(r).all():
        raise BadInput("a real value is not finite", hint="leave out what people's data do not define")
    terms = []
    for value, truth, others in zip(v.tolist(), r.tolist(), stored, strict=True):
        if not np.isfinite(value):
            terms.append(1.0)
            continue
        # The candidate is in its own spread, as published: a wild value costs 1 and no more.
        known = [truth, value, *(x for x in others if np.isfinite(x))]
        spread = max(known) - min(known)
        terms.append(abs(value - truth) / spread if spread > 0 else abs(value - truth))
    return float(np.mean(terms))


def relative_scores(distances: Float[Array, "theories observations"]) -> Float[Array, "theories"]:
    """Leaderboard scores in [0, 1] from distances to the real values; the worst theory has 0.

    Distances are scaled to [0, 1] among the theories of each observation (NaN: 1; all equal: 0), and a
    score is 1 less the length of a theory's row over the greatest length. All 1 where no row has a length.

    Raises: BadInput for no theory or observation, or a negative distance.
    Source: arXiv:2606.26448 (code).
    """
    d = np.asarray(distances, dtype=np.float64)
    if d.ndim != 2 or not d.size:
        raise BadInput("a leaderboard needs a table of theories by observations")
    scores: Float[Array, "theories"] = leaderboards(d[None])[0]
    return scores


def leaderboards(distances: Float[Array, "tables theories observations"]) -> Float[Array, "tables theories"]:
    """:func:`relative_scores` of many tables at once."""
    d = np.asarray(distances, dtype=np.float64)
    if (d < 0).any():
        raise BadInput("a distance is below 0")
    known = np.isfinite(d)
    # Where no theory is known the span is -inf, which counts as no span; all get 1 below.
    low = np.where(known, d, np.inf).min(axis=1, keepdims=True)
    high = np.where(known, d, -np.inf).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        span = high - low
        scaled = np.where(span > 0, (d - low) / np.where(span > 0, span, 1), 0.0)
    lengths = np.sqrt((np.where(known, scaled, 1.0) ** 2).sum(axis=2))
    longest = lengths.max(axis=1, keepdims=True)
    scores: Float[Array, "tables theories"] = 1 - lengths / np.where(longest > 0, longest, 1.0)
    return scores


def distances(
    values: Float[Array, "theories observations"], real: Float[Array, "observations"]
) -> Float[Array, "theories observations"]:
    """|value - real| of a dense table of metric values; NaN where a theory has none.

    Raises: BadInput where the table's width is not the number of real values.
    """
    table, truth = np.asarray(values, dtype=np.float64), np.asarray(real, dtype=np.float64)
    if table.ndim != 2 or truth.shape != table.shape[1:]:
        raise BadInput(f"a table of shape {table.shape} and {truth.size} real values")
    return np.abs(table - truth)
