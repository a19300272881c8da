"""Learning curves into a table: final success, paired differences, tokens to reach a level. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork import stats
from refork.errors import BadInput
from refork.stats.results import Interval

Float64 = NDArray[np.float64]

ENOUGH_SEEDS = 3
"""With fewer training runs an interval over runs says nothing; tasks are the units then, and it is said."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One training run: tokens sampled before each evaluation [k], success per held-out task [k, tasks]."""

    tokens: Float64
    success: Float64

    def __post_init__(self) -> None:
        if self.success.ndim != 2 or len(self.tokens) != len(self.success) or not len(self.tokens):
            raise BadInput(
                f"{len(self.tokens)} token counts but evaluations of shape {self.success.shape}",
                where="curve",
            )
        if (np.diff(self.tokens) < 0).any():
            raise BadInput("token counts must not fall along a curve", where="curve")

    @property
    def mean(self) -> Float64:
        """Success over tasks at each evaluation, [k]."""
        return np.asarray(np.nanmean(self.success, axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class MeanCurve:
    """Runs of one arm averaged: ``tokens`` [g], ``success`` [g] and its rising fit ``fitted`` [g]."""

    tokens: Float64
    success: Float64
    fitted: Float64


def mean_curve(curves: Sequence[Curve], points: int = 33) -> MeanCurve:
    """Average of interpolated runs on a common grid of tokens, up to the shortest run.

    ``fitted`` is the closest curve that never falls (isotonic least squares): a level is reached where the
    fit reaches it, so that one lucky evaluation is not a success.

    Raises BadInput where there is no curve.
    """
    from scipy.optimize import isotonic_regression

    if not curves:
        raise BadInput("there is no learning curve to average", where="comparison")
    # Only as far as every run went: np.interp would go on with a shorter run's last value as if measured.
    grid = np.linspace(0.0, min(float(c.tokens[-1]) for c in curves), points)
    rows = [np.interp(grid, c.tokens - c.tokens[0], c.mean) for c in curves]
    mean = np.mean(rows, axis=0)
    return MeanCurve(grid, mean, np.asarray(isotonic_regression(mean).x, dtype=np.float64))


def tokens_to_level(tokens: ArrayLike, fitted: ArrayLike, level: float) -> float | None:
    """Tokens at which a rising curve first reaches a level, linear between points; None: never."""
    x, y = np.asarray(tokens, dtype=np.float64), np.asarray(fitted, dtype=np.float64)
    reached = np.flatnonzero(y >= level - 1e-12)
    if not len(reached):
        return None
    i = int(reached[0])
    if i == 0:
        return float(x[0])
    return float(x[i - 1] + (level - y[i - 1]) / (y[i] - y[i - 1]) * (x[i] - x[i - 1]))


@dataclass(frozen=True, slots=True)
class Row:
    """One arm against the baseline.

    ``final``: success at the end of the rising fit of the mean over runs. ``area``: mean success over the
    whole budget. ``gain`` and ``area_gain``: paired differences to the baseline with intervals (None for the
    baseline, or where there is one unit); ``unit`` says whether runs or tasks were paired. ``share``: tokens
    to reach the baseline's final success, as a share of those the baseline needed itself; None: not reached.
    """

    arm: str
    runs: int
    final: float
    area: float
    gain: Interval | None
    area_gain: Interval | None
    unit: str
    share: float | None


def area_under(curve: Curve) -> Float64:
    """Success averaged over the token budget, per task [tasks] (trapezoids)."""
    width = float(curve.tokens[-1] - curve.tokens[0])
    if width <= 0:
        return np.asarray(curve.success[-1])
    return np.asarray(np.trapezoid(curve.success, curve.tokens, axis=0) / width)


def compare_arms(arms: Mapping[str, Sequence[Curve]], baseline: str) -> list[Row]:
    """A row per arm, the baseline first; run i of every arm had the same seed, tasks and noise.

    Raises BadInput for an unknown baseline, or arms with another number of runs than the baseline.
    """
    if baseline not in arms:
        raise BadInput(f"there is no arm {baseline!r}", hint=f"arms: {', '.join(arms)}")
    base = arms[baseline]
    reference = mean_curve(base)
    level = float(reference.fitted[-1])
    own = tokens_to_level(reference.tokens, reference.fitted, level)
    rows = []
    for name in (baseline, *(n for n in arms if n != baseline)):
        runs = arms[name]
        if len(runs) != len(base):
            raise BadInput(
                f"arm {name} has {len(runs)} runs and {baseline} has {len(base)}", where="comparison"
            )
        curve = mean_curve(runs)
        needed = tokens_to_level(curve.tokens, curve.fitted, level)
        same = name == baseline
        gain, unit = (
            (None, "") if same else _paired([c.success[-1] for c in base], [c.success[-1] for c in runs])
        )
        area = None if same else _paired([area_under(c) for c in base], [area_under(c) for c in runs])[0]
        rows.append(
            Row(
                name,
                len(runs),
                float(curve.fitted[-1]),
                float(np.mean([np.nanmean(area_under(c)) for c in runs])),
                gain,
                area,
                unit,
                None if needed is None or not own else needed / own,
            )
        )
    return rows


def _paired(base: Sequence[Float64], other: Sequence[Float64]) -> tuple[Interval | None, str]:
    """Mean paired difference over runs (Student's t), or over tasks where runs are too few."""
    if len(base) >= ENOUGH_SEEDS:
        x, y = (np.array([float(np.nanmean(v)) for v in side]) for side in (base, other))
        return stats.paired_t(x, y).interval, "runs"
    x, y = (np.nanmean(np.stack(list(side)), axis=0) for side in (base, other))
    known = np.isfinite(x) & np.isfinite(y)
    found = stats.paired_difference(x[known], y[known]).interval if known.sum() > 1 else None
    return found, "tasks"
