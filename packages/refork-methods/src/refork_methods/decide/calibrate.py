"""From a score to the chance of being right, learned on held-out cases; how far off stated chances are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float, Shaped

from refork.errors import BadInput
from refork.stats import Interval, wilson
from refork.stats.results import Array, finite
from refork.types import Json
from refork_methods.decide.posterior import BetaRate

Method: TypeAlias = Literal["isotonic", "bins"]
#: Below this many cases of either outcome a fit says nothing.
FEWEST = 5


@final
@dataclass(frozen=True, slots=True)
class Calibration:
    """A non-decreasing map from a score to a chance: ``chances`` at ``knots``, linear between, flat outside.

    ``bins`` maps are steps instead: a score takes the chance of the last knot at or below it.
    ``positives`` of ``cases`` is what it was fitted on.
    """

    method: Method
    knots: tuple[float, ...]
    chances: tuple[float, ...]
    positives: int
    cases: int

    def __call__(self, scores: Shaped[Array, "cases"]) -> Float[np.ndarray, "cases"]:
        """The chances of scores. Raises BadInput for NaN."""
        x = finite(scores, "scores")
        knots, chances = np.asarray(self.knots), np.asarray(self.chances)
        if self.method == "isotonic":
            return np.asarray(np.interp(x, knots, chances))
        last = np.searchsorted(knots, x, side="right") - 1
        return np.asarray(chances[np.clip(last, 0, len(knots) - 1)])

    def chance(self, score: float) -> float:
        """The chance of one score."""
        return float(self(np.array([score]))[0])

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "method": self.method,
            "knots": list(self.knots),
            "chances": list(self.chances),
            "positives": self.positives,
            "cases": self.cases,
        }

    @classmethod
    def from_json(cls, data: Json) -> Calibration:
        """Inverse of :meth:`to_json`. Raises BadInput for what is no such map."""
        try:
            method, knots, chances = data["method"], tuple(data["knots"]), tuple(data["chances"])
            made = cls(method, knots, chances, int(data["positives"]), int(data["cases"]))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"this is no calibration: {error!r}") from error
        sound = made.method in ("isotonic", "bins") and len(knots) == len(chances) >= 1
        if not sound or list(knots) != sorted(knots) or not all(0 <= p <= 1 for p in chances):
            raise BadInput("this is no calibration: knots must rise and chances lie in [0, 1]")
        return made


def fit_calibration(
    scores: Shaped[Array, "cases"],
    outcomes: Shaped[Array, cases],
    method: Method = "isotonic",
    *,
    bins: int = 10,
) -> Calibration:
    """Fit the chance of outcome 1 given a score.

    ``isotonic``: least-squares non-decreasing steps, each pulled to a beta posterior mean with uniform prior,
    so that no finite sample claims certainty. ``bins``: equal-count bins of the score, each such a mean.

    Raises: BadInput for NaN, outcomes other than 0 and 1, or fewer than five cases of either outcome.
    Source: isotonic calibration, Zadrozny and Elkan (2002); the posterior means are ours.
    """
    x, y = finite(scores, "scores"), finite(outcomes, "outcomes")
    if x.shape != y.shape or not np.isin(y, (0.0, 1.0)).all():
        raise BadInput("every score needs one outcome, 0 or 1")
    positives = int(y.sum())
    if min(positives, y.size - positives) < FEWEST:
        raise BadInput(
            f"{positives} right and {y.size - positives} wrong cases cannot calibrate a score",
            hint=f"at least {FEWEST} of each",
        )
    if method not in ("isotonic", "bins"):
        raise BadInput(f"unknown calibration {method!r}", hint="'isotonic' or 'bins'")
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    blocks = _isotonic_blocks(x, y) if method == "isotonic" else _equal_bins(x, bins)
    knots: list[float] = []
    chances: list[float] = []
    for low, high in blocks:
        chance = BetaRate(float(y[low:high].sum()), float(high - low)).mean
        ends = {float(x[low]), float(x[high - 1])} if method == "isotonic" else {float(x[low])}
        # Both ends of a block carry its chance: the line between them is flat, only gaps are interpolated.
        for knot in sorted(ends):
            knots.append(knot)
            chances.append(chance)
    if method == "isotonic":  # pulling blocks of different sizes to the prior may swap neighbours
        chances = [float(p) for p in np.maximum.accumulate(chances)]
    return Calibration(method, tuple(knots), tuple(chances), positives, int(y.size))


def _isotonic_blocks(x: np.ndarray, y: np.ndarray) -> list[tuple[int, int]]:
    from sklearn.isotonic import IsotonicRegression

    level = np.asarray(IsotonicRegression(y_min=0, y_max=1).fit_transform(x, y))
    return _runs(level)


def _equal_bins(x: np.ndarray, bins: int) -> list[tuple[int, int]]:
    if bins < 1:
        raise BadInput(f"{bins} bins", hint="at least 1")
    edges = x[np.linspace(0, x.size, bins + 1).astype(int)[1:-1]]
    return _runs(np.searchsorted(np.unique(edges), x, side="right"))


def _runs(level: np.ndarray) -> list[tuple[int, int]]:
    """Stretches (start, end) of equal neighbours."""
    starts = np.flatnonzero(np.concatenate([[True], level[1:] != level[:-1]]))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), level.size], strict=True))


@dataclass(frozen=True, slots=True)
class Reliability:
    """One bin of a reliability diagram: mean stated chance, and the observed rate with its interval."""

    stated: float
    observed: Interval
    cases: int


def reliability(
    chances: Shaped[Array, "cases"], outcomes: Shaped[Array, cases], bins: int = 10
) -> list[Reliability]:
    """Equal-width bins of stated chances, the empty ones left out; Wilson intervals.

    Raises: BadInput as :func:`brier`.
    """
    p, y = _stated(chances, outcomes)
    place = np.minimum((p * bins).astype(int), bins - 1)
    return [
        Reliability(
            float(p[place == b].mean()),
            wilson(int(y[place == b].sum()), int((place == b).sum())),
            int((place == b).sum()),
        )
        for b in range(bins)
        if (place == b).any()
    ]


def calibration_error(
    chances: Shaped[Array, "cases"], outcomes: Shaped[Array, cases], bins: int = 10
) -> float:
    """Expected calibration error: mean |stated - observed| over equal-width bins, weighed by cases.

    Biased upward in small samples: compare it between methods on the same cases, not with 0.
    """
    p, y = _stated(chances, outcomes)
    place = np.minimum((p * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(place, p - y, bins)).sum() / p.size)


def brier(chances: Shaped[Array, "cases"], outcomes: Shaped[Array, cases]) -> float:
    """Mean squared difference of stated chances and outcomes; 0 is perfect, 0.25 is always saying one half.

    Raises: BadInput for chances outside [0, 1] or outcomes other than 0 and 1.
    """
    p, y = _stated(chances, outcomes)
    return float(((p - y) ** 2).mean())


def _stated(chances: Shaped[Array, "cases"], outcomes: Shaped[Array, cases]) -> tuple[np.ndarray, np.ndarray]:
    p, y = finite(chances, "chances"), finite(outcomes, "outcomes")
    if p.shape != y.shape or not np.isin(y, (0.0, 1.0)).all() or (p < 0).any() or (p > 1).any():
        raise BadInput("every chance must lie in [0, 1] and have one outcome, 0 or 1")
    return p, y
