"""How far raters agree beyond chance."""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped

from refork.errors import BadInput
from refork.stats.results import Array


def fleiss_kappa(ratings: Shaped[Array, "items raters"]) -> float | None:
    """Fleiss' kappa of a table of ratings (any labels); None where all ratings are one label.

    Raises: BadInput for fewer than two raters, no items, or a missing rating (NaN).
    Source: Fleiss, Measuring nominal scale agreement among many raters (1971).
    """
    from statsmodels.stats.inter_rater import aggregate_raters
    from statsmodels.stats.inter_rater import fleiss_kappa as statsmodels_kappa

    table = np.asarray(ratings)
    if table.ndim != 2 or table.shape[1] < 2 or not len(table):
        raise BadInput("agreement needs a table with an item per row and at least two raters")
    if table.dtype.kind == "f" and np.isnan(table).any():
        raise BadInput(f"{int(np.isnan(table).any(axis=1).sum())} items lack a rating")
    counts, labels = aggregate_raters(table)
    # Chance agreement is then 1, and 0 / 0 is no kappa.
    return None if len(labels) < 2 else float(statsmodels_kappa(counts, method="fleiss"))


def cohen_kappa(first: Shaped[Array, "items"], second: Shaped[Array, "items"]) -> float | None:
    """Cohen's kappa of two raters; None where both only ever say one and the same label.

    Raises: BadInput where lengths differ or there is nothing to compare.
    Source: Cohen, A coefficient of agreement for nominal scales (1960).
    """
    from sklearn.metrics import cohen_kappa_score

    a, b = np.asarray(first), np.asarray(second)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise BadInput(f"{a.size} ratings cannot be compared with {b.size}")
    if len(np.unique(np.concatenate([a, b]))) < 2:
        return None
    return float(cohen_kappa_score(a, b))
