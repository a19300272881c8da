"""The highest AUROC any reader of the prompt can reach, known exactly or estimated from repeated rollouts.

Where a prompt refuses with chance q, its outcome is a draw, and no score that sees only the prompt can
order draws better than q itself does. That limit is AUROC*. High AUROC* and low outcome variance
``4 q (1 - q)`` are one fact seen twice: both say that q lies near 0 or 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.mixture import binomial_likelihood, mixture_distributions
from refork.stats.results import Array

#: Why there is no AUROC* of single rollouts.
ONE_ROLLOUT: Final = "one rollout each says nothing about how sure an outcome was"
#: Steps of the EM iteration. Stopped here it is smoother than the full maximum-likelihood mixture, whose few
#: atoms make AUROC* too low (by a standard error at 8 rollouts); a fixed number keeps it deterministic.
STEPS: Final = 100
#: Chances of refusal of which the mixture is made, dense at 0 and 1.
GRID: Final = np.sin(np.linspace(0.0, np.pi / 2, 81)) ** 2
#: Factors by which chances are drawn to their mean for calibration; close to each other where it is flat.
NEARER: Final = np.array([0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0])
#: Data sets drawn for each of them.
READINGS: Final = 40
_DISTANCE: Final = np.abs(GRID[:, None] - GRID)
#: The mixture's own coordinates; the ends stand for chances of 0 and 1.
_LOGITS: Final = np.log(np.clip(GRID, 1e-12, None)) - np.log(np.clip(GRID[::-1], 1e-12, None))


@final
@dataclass(frozen=True, slots=True)
class Ceiling:
    """AUROC* with its standard error (of drawing the prompts), and an interval that assumes nothing.

    ``repeat`` is what the prompt's other rollouts reach as a score: its mean lies below AUROC*. ``plug_in``
    takes shares of refusals for chances: its mean lies above. ``rollouts`` is the range per unit.
    """

    estimate: float
    se: float
    repeat: float
    plug_in: float
    units: int
    rollouts: tuple[int, int]


def auroc_ceiling(chances: Float[Array, "units"], weights: Float[Array, "units"] | None = None) -> float:
    """AUROC* of known chances of refusal: 1/2 + E|q - q'| / (4 m (1 - m)), m the mean chance.

    The limit P(q+ > q-) + P(q+ = q-) / 2, with q+ and q- the chances behind a refusal and a compliance,
    written out: the pair's weight is max(q, q') (1 - min(q, q')), and max = mean + half the distance.

    Raises: BadInput for chances outside [0, 1], negative weights, or a mean of 0 or 1.
    Source: the limit follows arXiv:2606.25013's setting; the formula is ours.
    """
    q = np.asarray(chances, dtype=np.float64).reshape(-1)
    w = np.ones_like(q) if weights is None else np.asarray(weights, dtype=np.float64).reshape(-1)
    if q.size == 0 or w.shape != q.shape or not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
        raise BadInput("every chance needs one weight, 0 or more, and some must be above 0")
    if not ((q >= 0) & (q <= 1)).all():
        raise BadInput("chances of refusal must lie in [0, 1]")
    w = w / w.sum()
    mean = float(w @ q)
    if not 0 < mean < 1:
        raise BadInput(f"the mean chance of refusal is {mean:g}: there is only one outcome to tell")
    order = np.argsort(q, kind="stable")
    q, w = q[order], w[order]
    # In sorted order the mean distance of all pairs is one product, not a table of units by units.
    distance = 2.0 * float((w * q) @ (2.0 * np.cumsum(w) - w - 1.0))
    return min(1.0, 0.5 + max(0.0, distance) / (4.0 * mean * (1.0 - mean)))


def estimate_ceiling(
    refusals: Int[Array, "units"],
    rollouts: Int[Array, "units"],
    *,
    prompts: Int[Array, "units"] | None = None,
    resamples: int = 500,
    seed: int = 0,
) -> Ceiling:
    """AUROC* from ``refusals[i]`` of ``rollouts[i]`` in each unit: what a reader can see of one rollout.

    A unit is a prompt, or a prompt and its first thinking token; it counts by its rollouts. Shares of
    refusals scatter more than chances do, so taking one for the other overstates AUROC*. Here the
    distribution of chances is a mixture over a grid, fitted by a fixed number of EM steps, and AUROC* read
    off it. That reading is too high where chances hardly differ. So data are drawn from the fitted mixture
    with its chances drawn nearer and nearer to their mean, where AUROC* is known, and read in the same way:
    the estimate is the AUROC* whose readings are on average the one found. ``prompts`` are resampled for the
    standard error: codes of units, each its own by default.

    Bias over 400 prompts: below 0.002 over Beta distributions at 8 to 32 rollouts. Of equal chances,
    AUROC* 0.5, about every second data set reads exactly 0.5 and the others more: 0.52 on average at 8
    rollouts, 0.51 at 32. Nothing can mend that: an estimate that is never below what can be is above it on
    average. Chances of two values, 0.1 and 0.9, read 0.01 too high at 8 rollouts, for the counts of smooth
    chances are nearly the same.

    Raises: BadInput for impossible counts, no unit with two rollouts, or only one outcome.
    Source: ours; the mixture is the nonparametric maximum-likelihood estimate of Laird (1978), stopped early.
    """
    r, n = _counts(refusals, rollouts)
    codes = np.arange(r.size) if prompts is None else np.unique(prompts, return_inverse=True)[1].reshape(-1)
    if codes.shape != r.shape:
        raise BadInput(f"{codes.size} prompt codes for {r.size} units")
    drawn = prompt_draws(int(codes.max()) + 1, resamples, np.random.default_rng(seed))
    return Counts.of(r, n, codes).ceiling(drawn, seed)[0]


def prompt_draws(prompts: int, resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """How often each prompt is drawn in each bootstrap resample, [resamples, prompts]."""
    return rng.multinomial(prompts, np.full(prompts, 1.0 / prompts), size=resamples).astype(np.float64)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Units as patterns: equal counts are fitted once. ``shares`` [prompts, patterns] are rollouts."""

    refusals: NDArray[np.int64]
    rollouts: NDArray[np.int64]
    shares: NDArray[np.float64]
    likelihood: NDArray[np.float64]

    @classmethod
    def of(
        cls, refusals: NDArray[np.int64], rollouts: NDArray[np.int64], prompts: NDArray[np.int64]
    ) -> Counts:
        """The patterns of units and how many rollouts each prompt has in each of them."""
        patterns, which = np.unique(np.stack([refusals, rollouts], axis=1), axis=0, return_inverse=True)
        shares = np.zeros((int(prompts.max()) + 1, len(patterns)))
        np.add.at(shares, (prompts, which.reshape(-1)), rollouts.astype(np.float64))
        return cls(refusals, rollouts, shares, binomial_likelihood(patterns[:, 0], patterns[:, 1], _LOGITS))

    def ceiling(self, draws: NDArray[np.float64], seed: int) -> tuple[Ceiling, NDArray[np.float64]]:
        """The estimate on all prompts, and its values on resamples [b, prompts]: NaN of one outcome only."""
        r, n = self.refusals, self.rollouts
        mixture = mixture_distributions(self.likelihood, self.shares.sum(axis=0)[None], STEPS)
        found = float(_read(mixture)[0])
        readings = _mean_readings(mixture[0], n, np.random.default_rng([seed, 1]))

        def calibrated(reading: NDArray[np.float64]) -> NDArray[np.float64]:
            # Chances drawn nearer by a factor have their excess over one half times that factor.
            known = 0.5 + NEARER * (found - 0.5)
            above = np.maximum(reading - readings[-1], 0.0)
            return np.asarray(np.clip(np.interp(reading, readings, known) + above, 0.5, 1.0))

        resampled = _read(mixture_distributions(self.likelihood, draws @ self.shares, STEPS))
        alive = resampled[np.isfinite(resampled)]
        # Resampling overfits the mixture once more than the sample did; only the scatter is wanted.
        values = calibrated(resampled - (float(alive.mean()) - found)) if alive.size else resampled
        ceiling = Ceiling(
            estimate=float(calibrated(np.array([found]))[0]),
            se=float(np.nanstd(values, ddof=1)) if alive.size > 1 else math.nan,
            repeat=_repeat(r, n),
            plug_in=auroc_ceiling(r / n, n.astype(np.float64)),
            units=int(r.size),
            rollouts=(int(n.min()), int(n.max())),
        )
        return ceiling, values


def _read(mixture: NDArray[np.float64]) -> NDArray[np.float64]:
    """AUROC* of distributions [samples, grid] over the grid; NaN where only one outcome is left."""
    mean = mixture @ GRID
    spread = mean * (1 - mean)
    distance = ((mixture @ _DISTANCE) * mixture).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = 0.5 + distance / (4 * spread)
    return np.where(spread > 1e-12, np.minimum(found, 1.0), np.nan)


def _mean_readings(
    mixture: NDArray[np.float64], rollouts: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Mean reading of data drawn from a mixture whose chances are drawn nearer by each factor, rising."""
    from scipy.stats import binom

    sizes, units = np.unique(rollouts, return_counts=True)
    k = np.concatenate([np.arange(n + 1) for n in sizes])
    n = np.repeat(sizes, sizes + 1)
    mean, mixture = float(mixture @ GRID), mixture / mixture.sum()
    samples = []
    for factor in NEARER:
        chances = np.clip(mean + factor * (GRID - mean), 0.0, 1.0)
        counted = binom.pmf(k[:, None], n[:, None], chances) @ mixture
        drawn = [
            rng.multinomial(many, counted[n == size] / counted[n == size].sum(), READINGS) * size
            for size, many in zip(sizes, units, strict=True)
        ]
        samples.append(np.concatenate(drawn, axis=1))
    likelihood = binomial_likelihood(k, n, _LOGITS)
    found = _read(mixture_distributions(likelihood, np.concatenate(samples).astype(np.float64), STEPS))
    means = np.nanmean(found.reshape(len(NEARER), READINGS), axis=1)
    return np.asarray(np.maximum.accumulate(means))


def _counts(refusals: Any, rollouts: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    r, n = np.asarray(refusals).reshape(-1), np.asarray(rollouts).reshape(-1)
    if r.shape != n.shape or r.size == 0:
        raise BadInput(f"{r.size} counts of refusals for {n.size} counts of rollouts")
    if not all(np.isfinite(part).all() and (part == np.floor(part)).all() for part in (r, n)):
        raise BadInput("counts of refusals and rollouts must be whole numbers")
    r, n = r.astype(np.int64), n.astype(np.int64)
    bad = np.flatnonzero((n < 1) | (r < 0) | (r > n))
    if bad.size:
        i = int(bad[0])
        raise BadInput(f"{r[i]} refusals of {n[i]} rollouts is not a count", where=f"unit {i}")
    if n.max() < 2:
        raise BadInput(ONE_ROLLOUT, hint="draw at least two rollouts of every prompt; 8 or more are better")
    if r.sum() in (0, n.sum()):
        raise BadInput("all rollouts have one outcome: there is nothing to tell apart")
    return r, n


def _repeat(refusals: NDArray[np.int64], rollouts: NDArray[np.int64]) -> float:
    """AUROC of every rollout's label scored by its unit's other rollouts, pairs inside a unit left out."""
    from refork_methods.probe.area import weighted_auroc

    keep = rollouts > 1
    r, n = refusals[keep].astype(np.float64), rollouts[keep].astype(np.float64)
    if r.sum() in (0, n.sum()):
        return math.nan
    scores = np.concatenate([(r - 1) / (n - 1), r / (n - 1)])
    positive = np.concatenate([r, np.zeros_like(r)])
    negative = np.concatenate([np.zeros_like(r), n - r])
    all_pairs, inside = float(r.sum() * (n - r).sum()), float((r * (n - r)).sum())
    if all_pairs <= inside:
        return math.nan
    # Inside a unit a refusal scores below a compliance (its own label is taken out): those pairs add 0.
    beaten = float(weighted_auroc(scores, positive[None], negative[None])[0])
    return beaten * all_pairs / (all_pairs - inside)
