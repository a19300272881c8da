"""An AUROC that cannot be had without its ceiling, and the alarm where it lies above."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput, InternalError
from refork.plain import to_json
from refork.stats import Interval
from refork.stats.results import Array
from refork.types import Json
from refork_methods.probe.cases import FEWEST, Cases
from refork_methods.probe.ceiling import Ceiling, Counts, prompt_draws
from refork_methods.probe.shuffled import Null

#: Bootstrap resamples of the prompts, for AUROC and ceiling alike.
RESAMPLES: Final = 500
#: The bias of AUROC* that its estimate may keep.
RESOLUTION: Final = 0.002
_BLOCK: Final = 4_000_000


@final
@dataclass(frozen=True, slots=True)
class Area:
    """An AUROC with its interval, beside AUROC* or the reason why there is none.

    ``excess`` is AUROC minus AUROC*, ``excess_se`` its standard error: both are found on the same resampled
    prompts, so what they share cancels.
    """

    auroc: Interval
    ceiling: Ceiling | None
    no_ceiling: str | None
    excess: float | None
    excess_se: float | None
    refused: int
    complied: int
    prompts: int

    def __post_init__(self) -> None:
        known = (self.ceiling is not None, self.excess is not None, self.excess_se is not None)
        if any(known) != all(known) or (self.no_ceiling is None) != known[0]:
            raise InternalError("an AUROC stands beside its ceiling, or beside the reason for none")

    @property
    def leak(self) -> bool | None:
        """Whether AUROC lies more than two standard errors above AUROC*; None where that is not known.

        An excess within the bias of AUROC* itself is no evidence and raises no alarm.
        """
        if self.excess is None or self.excess_se is None:
            return None
        return self.excess > max(2 * self.excess_se, RESOLUTION)

    def to_json(self) -> Json:
        """Plain numbers, the ceiling among them."""
        return {
            "auroc": self.auroc.estimate, "low": self.auroc.low, "high": self.auroc.high,
            "ceiling": to_json(self.ceiling), "no_ceiling": self.no_ceiling,
            "excess": self.excess, "excess_se": self.excess_se, "leak": self.leak,
            "refused": self.refused, "complied": self.complied, "prompts": self.prompts,
        }  # fmt: skip

    def __str__(self) -> str:
        shown = f"{self.auroc.estimate:.3f} [{self.auroc.low:.3f}, {self.auroc.high:.3f}]"
        if self.ceiling is None:
            return f"{shown} (AUROC* unknown: {self.no_ceiling})"
        alarm = " LEAK" if self.leak else ""
        return f"{shown} of at most {self.ceiling.estimate:.3f} ± {self.ceiling.se:.3f}{alarm}"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Booted:
    """An area with its bootstrap values, [resamples] each, of AUROC and ceiling on the same draws.

    ``error`` is the standard error of the AUROC of the scores as they are, prompts resampled. ``null`` are
    AUROC and that error of probes refitted to shuffled labels, [2, shuffles]; None of scores that no
    cross-validation made.
    """

    area: Area
    aurocs: NDArray[np.float64]
    ceilings: NDArray[np.float64] | None
    error: float
    null: NDArray[np.float64] | None


def weighted_auroc(
    scores: Float[Array, "cases"],
    positive: Float[Array, "draws cases"],
    negative: Float[Array, "draws cases"],
) -> Float[Array, "draws"]:
    """AUROC, ties counted half, where case i stands for so many positives and negatives in each draw.

    NaN in draws without both. One draw of 0s and 1s gives the usual AUROC.
    """
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(scores[order]) != 0])
    # Cases of one score are one step: half of its negatives count as below its positives, whatever the order.
    up = np.add.reduceat(positive[:, order], starts, axis=1)
    down = np.add.reduceat(negative[:, order], starts, axis=1)
    below = np.cumsum(down, axis=1) - down / 2
    total = up.sum(axis=1) * down.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((up * below).sum(axis=1) / total)


def auroc_error(
    scores: Float[Array, "rows"], labels: Int[Array, "rows"], prompts: Int[Array, "rows"]
) -> tuple[float, float]:
    """AUROC of fixed scores and its standard error over prompts; NaN where one outcome is missing.

    The error is the root of the sum of the prompts' squared influences: the infinitesimal jackknife.
    """
    up = labels.astype(np.float64)
    refused, complied = float(up.sum()), float(len(up) - up.sum())
    if not refused or not complied:
        return math.nan, math.nan
    _, level = np.unique(scores, return_inverse=True)
    level = level.reshape(-1)
    per = np.stack([np.bincount(level, weights) for weights in (1 - up, up)])
    # Compliances below a row, refusals above it, ties half.
    below = (np.cumsum(per[0]) - per[0] / 2)[level] / complied
    above = 1 - (np.cumsum(per[1]) - per[1] / 2)[level] / refused
    auroc = float(up @ below) / refused
    parts = np.bincount(prompts, np.where(labels == 1, (below - auroc) / refused, (above - auroc) / complied))
    return auroc, math.sqrt(float(parts @ parts))


def area(
    scores: Float[Array, "rows"],
    cases: Cases,
    *,
    null: Null | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Booted:
    """AUROC of scores (higher: refuse) with a 95 % interval, beside its ceiling.

    Without ``null`` the scores are taken as given from outside, and prompts are resampled. Out-of-fold scores
    are not: with ``null`` their distance from one half, in standard errors, is held against that of probes
    refitted to shuffled labels, so the interval covers one half in 95 % of cases where states say nothing.
    Rows of one prompt stay together: they are not independent cases.

    Raises: BadInput for NaN scores, another number of them than rows, fewer than five examples of a class.
    Source: arXiv:2606.25013 resamples finished out-of-fold scores, which covers one half in 79 to 92 % of
    cases without a signal; the null and the ceiling are ours.
    """
    s = np.asarray(scores, dtype=np.float64)
    if s.shape != cases.labels.shape or not np.isfinite(s).all():
        raise BadInput("every case needs one finite score", where="AUROC")
    refused = int(cases.labels.sum())
    if min(refused, len(s) - refused) < FEWEST:
        raise BadInput(
            f"{refused} refusals and {len(s) - refused} compliances: {FEWEST} of each are needed",
            where="AUROC",
        )
    prompts = int(cases.prompts.max()) + 1
    draws = prompt_draws(prompts, resamples, np.random.default_rng(seed))
    estimate = float(_aurocs(s, cases, np.ones((1, prompts)))[0])
    aurocs = _aurocs(s, cases, draws)
    counts = _counts(cases)
    ceiling, ceilings = (None, None) if counts is None else counts.ceiling(draws, seed)
    error = auroc_error(s, cases.labels, cases.prompts)[1]
    chance = None
    if null is not None:
        pairs = zip(null.scores, null.labels, strict=True)
        chance = np.array([auroc_error(one, labels, cases.prompts) for one, labels in pairs]).T
    sizes = (refused, len(s) - refused, prompts)
    interval = _interval(estimate, aurocs, error, chance)
    found = _area(interval, aurocs, ceiling, ceilings, cases.no_ceiling, sizes)
    return Booted(found, aurocs, ceilings, error, chance)


def mean_area(parts: Sequence[Booted]) -> Area:
    """The macro mean of several groups' areas and of their ceilings; groups are resampled on their own.

    Areas of one cross-validation must come from the same shuffles: their groups share the probes.
    """
    areas = [part.area for part in parts]
    aurocs = np.mean([part.aurocs for part in parts], axis=0)
    nulls = [part.null for part in parts if part.null is not None]
    chance = None
    if len(nulls) == len(parts):
        both = np.stack(nulls)
        chance = np.stack([both[:, 0].mean(axis=0), np.sqrt((both[:, 1] ** 2).sum(axis=0)) / len(parts)])
    error = math.sqrt(sum(part.error**2 for part in parts)) / len(parts)
    estimate = float(np.mean([one.auroc.estimate for one in areas]))
    interval = _interval(estimate, aurocs, error, chance)
    sizes = tuple(sum(getattr(one, name) for one in areas) for name in ("refused", "complied", "prompts"))
    known = [one.ceiling for one in areas if one.ceiling is not None]
    boots = [part.ceilings for part in parts if part.ceilings is not None]
    if len(known) < len(areas):
        reason = next(one.no_ceiling for one in areas if one.no_ceiling is not None)
        return _area(interval, aurocs, None, None, reason, sizes)
    ceilings = np.mean(boots, axis=0)
    low, high = zip(*(one.rollouts for one in known), strict=True)
    ceiling = Ceiling(
        estimate=float(np.mean([one.estimate for one in known])),
        se=spread(ceilings),
        repeat=float(np.mean([one.repeat for one in known])),
        plug_in=float(np.mean([one.plug_in for one in known])),
        units=sum(one.units for one in known),
        rollouts=(min(low), max(high)),
    )
    return _area(interval, aurocs, ceiling, ceilings, None, sizes)


def spread(values: NDArray[np.float64] | None) -> float:
    """Standard deviation of the bootstrap values that are known; NaN of fewer than two."""
    known = np.array([]) if values is None else values[np.isfinite(values)]
    return float(known.std(ddof=1)) if known.size > 1 else math.nan


def _counts(cases: Cases) -> Counts | None:
    if cases.refusals is None or cases.rollouts is None or cases.unit_prompts is None:
        return None
    return Counts.of(cases.refusals, cases.rollouts, cases.unit_prompts)


def _aurocs(scores: NDArray[np.float64], cases: Cases, draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """AUROC in each draw of prompts; rows of one prompt with one score are added up first."""
    keys = np.stack([cases.prompts.astype(np.float64), scores], axis=1)
    kinds, which = np.unique(keys, axis=0, return_inverse=True)
    # NumPy 2.0 alone gives this inverse a second dimension.
    size, which = len(kinds), which.reshape(-1)
    up = np.bincount(which, cases.labels, size)
    down = np.bincount(which, 1 - cases.labels, size)
    owners = kinds[:, 0].astype(np.int64)
    # The weights of all draws at once would be draws times cases; a block bounds them.
    block = max(1, _BLOCK // size)
    found = []
    for first in range(0, len(draws), block):
        weights = draws[first : first + block][:, owners]
        found.append(weighted_auroc(kinds[:, 1], weights * up, weights * down))
    return np.concatenate(found)


def _interval(
    estimate: float, aurocs: NDArray[np.float64], error: float, null: NDArray[np.float64] | None
) -> Interval:
    """95 % interval: quantiles of resampled prompts, or the null's own quantiles of a distance in errors."""
    if null is None:
        low, high = (float(v) for v in np.quantile(aurocs[np.isfinite(aurocs)], (0.025, 0.975)))
        # In small samples the quantiles may miss the estimate itself.
        return Interval(estimate, min(low, estimate), max(high, estimate), 0.95, "bootstrap of prompts")
    far = np.sort(_distances(null))
    # Ranks as of a permutation test: the data are one more shuffle.
    rank = int(0.025 * (len(far) + 1) + 1e-9)
    low, high = estimate - error * float(far[-rank]), estimate - error * float(far[rank - 1])
    return Interval(
        estimate,
        max(0.0, min(low, estimate)),
        min(1.0, max(high, estimate)),
        0.95,
        "refits to shuffled prompts",
    )


def _distances(null: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of each shuffle's AUROC from one half in its own standard errors; 0 of constant scores."""
    gap, error = null[0] - 0.5, null[1]
    return np.asarray(np.divide(gap, error, out=np.zeros_like(gap), where=(error > 0) & np.isfinite(gap)))


def _area(
    interval: Interval,
    aurocs: NDArray[np.float64],
    ceiling: Ceiling | None,
    ceilings: NDArray[np.float64] | None,
    reason: str | None,
    sizes: tuple[int, ...],
) -> Area:
    excess = excess_se = None
    if ceiling is not None and ceilings is not None:
        excess = interval.estimate - ceiling.estimate
        excess_se = spread(aurocs - ceilings)
    refused, complied, prompts = sizes
    return Area(interval, ceiling, reason, excess, excess_se, refused, complied, prompts)
