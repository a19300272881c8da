"""Success prediction: does the score of a trajectory tell how it ended, and by which aggregation?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput
from refork.stats import Interval, auroc
from refork_methods.implicit.soft_values import Floats, Ints


@dataclass(frozen=True, slots=True)
class Prediction:
    """How well scores order outcomes.

    ``auroc`` with its bootstrap interval, ``delong`` the same area with DeLong's; ``spearman`` the rank
    correlation with the outcome (NaN where all scores are equal); ``resampled``: trajectories or tasks.
    """

    auroc: Interval
    delong: Interval
    spearman: float
    successes: int
    failures: int
    resampled: str


def _checked(scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise BadInput(f"{x.size} scores but {y.size} labels", where="success prediction")
    if np.isnan(x).any():
        raise BadInput(
            f"trajectory {int(np.flatnonzero(np.isnan(x))[0])} has no score",
            where="success prediction",
            hint="all its actions are cut: raise the length limit, or leave it out",
        )
    if not np.isin(y, (0.0, 1.0)).all():
        raise BadInput("labels must be 0 or 1", where="success prediction", hint="name a success threshold")
    if len(np.unique(y)) < 2:
        what = "succeeded" if len(y) and y[0] == 1 else "failed"
        raise BadInput(
            f"all {len(y)} trajectories {what}: nothing can be told apart",
            where="success prediction",
            hint="add trajectories of the other kind",
        )
    return x, y


def bootstrap_auroc(
    scores: ArrayLike,
    labels: ArrayLike,
    groups: Sequence[object] | None = None,
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """Area under the ROC curve, ties counted half, with a percentile bootstrap interval.

    Without ``groups`` successes and failures are resampled apart; with them (a task for each
    trajectory) whole groups are, since rollouts of one task resemble each other; resamples with one
    class only are left out.

    Raises:
        BadInput: labels of one class, scores that are not known, fewer than 100 resamples.
    """
    x, y = _checked(scores, labels)
    if resamples < 100:
        raise BadInput(f"{resamples} resamples cannot carry an interval", hint="at least 100")
    # Ranked once: a resample changes the weights only, so no resample has to sort.
    values, rank = np.unique(x, return_inverse=True)
    rng = np.random.default_rng(seed)
    names, member = (None, None) if groups is None else _members(groups, len(x))
    areas = []
    for _ in range(resamples):
        if names is None or member is None:
            weight = np.zeros(len(x))
            for label in (0.0, 1.0):
                rows = np.flatnonzero(y == label)
                weight[rows] = np.bincount(rng.integers(len(rows), size=len(rows)), minlength=len(rows))
        else:
            # Resampling is weighing: a task drawn twice counts all its trajectories twice.
            weight = np.bincount(rng.integers(names, size=names), minlength=names)[member].astype(float)
        areas.append(_area(rank, y, weight, len(values)))
    known = np.array(areas)[np.isfinite(areas)]
    if not len(known):
        raise BadInput("no resample of the tasks holds both a success and a failure", where="bootstrap")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    area = _area(rank, y, np.ones(len(x)), len(values))
    return Interval(area, float(low), float(high), level, "bootstrap percentile")


def _members(groups: Sequence[object], size: int) -> tuple[int, Ints]:
    if len(groups) != size:
        raise BadInput(f"{size} scores but {len(groups)} group names", where="success prediction")
    number = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    return len(number), np.array([number[name] for name in groups], dtype=np.int64)


def _area(rank: Ints, labels: Floats, weight: Floats, size: int) -> float:
    """Weighted AUROC from the ranks of scores among ``size`` distinct ones; NaN where a class is empty."""
    won = np.bincount(rank, weights=weight * labels, minlength=size)
    lost = np.bincount(rank, weights=weight * (1 - labels), minlength=size)
    total = won.sum() * lost.sum()
    below = np.cumsum(lost) - 0.5 * lost
    return float((won * below).sum() / total) if total > 0 else float("nan")


def predict_success(
    scores: ArrayLike,
    labels: ArrayLike,
    groups: Sequence[object] | None = None,
    *,
    seed: int = 0,
    resamples: int = 2000,
) -> Prediction:
    """How well scores tell successes (label 1) from failures (0); see :func:`bootstrap_auroc`.

    Raises:
        BadInput: labels of one class, fewer than two of a class, or a score that is not known.
    """
    from scipy.stats import spearmanr

    x, y = _checked(scores, labels)
    area = bootstrap_auroc(x, y, groups, seed=seed, resamples=resamples)
    spearman = float(spearmanr(x, y).statistic) if np.ptp(x) > 0 else float("nan")
    wins = int(y.sum())
    return Prediction(
        area, auroc(x, y), spearman, wins, len(y) - wins, "trajectories" if groups is None else "tasks"
    )


def tune(
    grid: Mapping[str, ArrayLike],
    labels: ArrayLike,
    *,
    tuned_on: Sequence[str],
    reported_on: Sequence[str],
) -> tuple[str, dict[str, float]]:
    """The aggregation with the highest AUROC on tuning data, and the AUROC of all.

    Args:
        grid: scores [n] of the tuning trajectories under each aggregation, by name.
        labels: their outcomes [n], 0 or 1.
        tuned_on: digests of the tuning trajectories (see :func:`trajectory_digest`).
        reported_on: digests of the trajectories that the choice will be reported on.

    Raises:
        BadInput: one trajectory is in both: the best of many aggregations looks good on the data that
            chose it even where none is.
    """
    shared = set(tuned_on) & set(reported_on)
    if shared:
        raise BadInput(
            f"{len(shared)} trajectories to report on were also used to choose the aggregation",
            where="tuning",
            hint="split the trajectories (by task, best) and tune on one part only",
        )
    areas: dict[str, float] = {}
    for name, scores in grid.items():
        x, y = _checked(scores, labels)
        _, rank = np.unique(x, return_inverse=True)
        areas[name] = _area(rank, y, np.ones(len(x)), int(rank.max()) + 1)
    best = max(areas, key=lambda name: areas[name])
    return best, areas


def trajectory_digest(text: str) -> str:
    """What tells trajectories apart when tuning data and reported data are compared, hex."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
