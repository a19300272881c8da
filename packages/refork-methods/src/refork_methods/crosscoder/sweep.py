"""Sweeps over features and strengths, and what may be said of their best cell. Pure.

The best of many cells is better than it is: its own prompts chose it. So a sweep has no best cell as such.
It is chosen on one half of the prompts and scored on the other, or it is reported with Holm's correction
for all cells and an interval that holds for all of them at once.

Source: arXiv:2606.26474 reports best-of-grid steering effects; the split, the correction and the comparison
with random directions of the same norm are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork import stats
from refork.errors import BadInput

Floats = NDArray[np.float64]
Selection = Literal["split_half", "holm"]


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One setting of a sweep, and its scores on all prompts [n] (0 or 1, or graded)."""

    name: str
    features: tuple[int, ...]
    alpha: float
    scores: Floats


@dataclass(frozen=True, slots=True)
class Best:
    """The best cell and how it was guarded against having been chosen.

    ``split_half``: chosen on ``chosen_on`` prompts, gain and interval of the ``scored_on`` others.
    ``holm``: chosen and scored on all, p corrected for every cell, and the interval widened to hold for all
    cells at once.
    """

    selection: Selection
    name: str
    features: tuple[int, ...]
    alpha: float
    gain: float
    low: float
    high: float
    p: float
    cells: int
    chosen_on: int
    scored_on: int


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Scores of the clean model and of every cell on the same prompts.

    Raises:
        BadInput: no cell, or scores of other prompts.
    """

    clean: Floats
    cells: tuple[Cell, ...]

    def __post_init__(self) -> None:
        if not self.cells:
            raise BadInput("a sweep needs a cell", where="sweep")
        for cell in self.cells:
            if cell.scores.shape != self.clean.shape or self.clean.ndim != 1:
                raise BadInput(
                    f"cell {cell.name!r} has scores {cell.scores.shape}, the clean model {self.clean.shape}",
                    where="sweep",
                )

    def best(self, selection: Selection, seed: int = 0) -> Best:
        """The best cell, guarded as ``selection`` says; ``seed`` splits the prompts.

        Raises:
            BadInput: another selection, or too few prompts to split.
        """
        if selection not in ("split_half", "holm"):
            raise BadInput(
                f"{selection!r} is no guard against choosing the best of {len(self.cells)} cells",
                where="sweep",
                hint="'split_half' or 'holm'",
            )
        everything = np.arange(len(self.clean))
        chosen_on, scored_on = (
            halves(len(self.clean), seed) if selection == "split_half" else (everything,) * 2
        )
        gains = [float((c.scores - self.clean)[chosen_on].mean()) for c in self.cells]
        cell = self.cells[int(np.argmax(gains))]
        # Bonferroni for the interval, which must hold for all cells at once: Holm's steps give none of their
        # own.
        level = 0.95 if selection == "split_half" else 1 - 0.05 / len(self.cells)
        base, other = self.clean[scored_on], cell.scores[scored_on]
        found = stats.paired_difference(base, other, level)
        p = difference_p(base, other)
        if selection == "holm":
            every = np.array([difference_p(self.clean, c.scores) for c in self.cells])
            p = float(stats.holm(every).p[int(np.argmax(gains))])
        return Best(
            selection, cell.name, cell.features, cell.alpha, found.interval.estimate, found.interval.low,
            found.interval.high, p, len(self.cells), len(chosen_on), len(scored_on),
        )  # fmt: skip


def halves(count: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Prompt numbers of a selection half and a held-out half, drawn by ``seed``.

    Raises:
        BadInput: fewer than four prompts.
    """
    if count < 4:
        raise BadInput(f"{count} prompts cannot be split in two halves", where="sweep", hint="at least 4")
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[: count // 2]), np.sort(order[count // 2 :])


def difference_p(base: Float[Floats, "n"], other: Float[Floats, "n"]) -> float:
    """Exact McNemar p for scores of 0 and 1, a paired t's otherwise."""
    if np.isin(base, (0.0, 1.0)).all() and np.isin(other, (0.0, 1.0)).all():
        return stats.mcnemar(int((other > base).sum()), int((other < base).sum())).p
    return stats.paired_difference(base, other).p


def same_norm(deltas: Float[Floats, "n d"], direction: Float[Floats, "d"]) -> Float[Floats, "n d"]:
    """A direction with, on every row, the norm that the intervention has there.

    Raises:
        BadInput: a direction of length 0, or of another width.
    """
    length = float(np.linalg.norm(direction))
    if deltas.ndim != 2 or direction.shape != deltas.shape[1:] or not length > 0:
        raise BadInput(f"a direction {direction.shape} cannot stand in for {deltas.shape}", where="controls")
    return np.asarray(np.linalg.norm(deltas, axis=1, keepdims=True) * (direction / length))


def above_random(
    top: Float[Floats, "n"],
    randoms: Float[Floats, "m n"],
) -> stats.Interval:
    """Mean score of an intervention on held-out prompts minus the 95th percentile of those of random ones.

    The interval (95 %) resamples whole prompts, 4,000 times: the random directions are the control as drawn.

    Raises:
        BadInput: other prompts, fewer than 20 random directions (their 95th percentile would be their
        largest).
    """
    if randoms.ndim != 2 or randoms.shape[1:] != top.shape or len(top) < 2:
        raise BadInput(
            f"scores {top.shape} and {randoms.shape} are not of the same prompts", where="controls"
        )
    if len(randoms) < 20:
        raise BadInput(f"{len(randoms)} random directions have no 95% quantile", where="controls", hint="50")
    rng = np.random.default_rng(0)
    both = np.vstack([top[None], randoms])
    # A resample as weights: one matrix product gives the means of all arms on the same prompts.
    weights = rng.multinomial(len(top), np.full(len(top), 1 / len(top)), size=4_000) / len(top)
    means = weights @ both.T
    drawn = means[:, 0] - np.quantile(means[:, 1:], 0.95, axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    estimate = float(top.mean() - np.quantile(randoms.mean(axis=1), 0.95))
    return stats.Interval(estimate, float(low), float(high), 0.95, "bootstrap over prompts")


def cells_of(
    ranked: Sequence[int], sizes: Sequence[int], alphas: Sequence[float]
) -> list[tuple[tuple[int, ...], float]]:
    """The settings of a grid: the first ``size`` of the ranked features, times ``alpha``.

    Raises:
        BadInput: an empty grid, or a size that is not 1 to the number of ranked features.
    """
    if not sizes or not alphas:
        raise BadInput("a grid needs sizes and alphas", where="sweep")
    for size in sizes:
        if not 1 <= size <= len(ranked):
            raise BadInput(f"there are not {size} ranked features but {len(ranked)}", where="sweep")
    return [(tuple(ranked[:size]), float(alpha)) for size in sizes for alpha in alphas]
