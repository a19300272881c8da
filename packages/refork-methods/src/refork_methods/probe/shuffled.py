"""The null of a cross-validated probe: labels shuffled between prompts, and the probe refitted on them.

Scores of one out-of-fold probe are no independent cases. Where states say nothing, row i moves the score of
row j as much as j moves that of i, so every chance agreement counts twice and the AUROC scatters with about
twice the variance that a bootstrap of the finished scores shows. Only refits show it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.probe.folds import Recipe, Scaled, scaled

#: Shuffles of a probe. The level is exact for any number of the form 40 k - 1; more give steadier ends.
SHUFFLES: Final = 199
#: With fewer, 2.5 % at either end is less than one of them.
FEWEST_SHUFFLES: Final = 39
_NEWTON: Final = 50
_BLOCK: Final = 8_000_000

#: Out-of-fold scores [shuffles, rows] of labels [shuffles, rows], every fold fitted anew.
Refit = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def shuffled_labels(
    labels: Int[Array, "rows"],
    prompts: Int[Array, "rows"],
    strata: Int[Array, "rows"],
    count: int,
    rng: np.random.Generator,
) -> Int[Array, "count rows"]:
    """``count`` copies of the labels, in which prompts of one stratum exchange their whole runs of labels.

    A prompt with more rows than the run that it takes over repeats it from the start, one with fewer takes
    its first labels. With equally many rows of every prompt, states that say nothing within strata make all
    copies equally likely.
    """
    keys = np.stack([strata, prompts])
    order = np.lexsort(keys[::-1])
    runs = np.split(order, np.flatnonzero((np.diff(keys[:, order]) != 0).any(axis=0)) + 1)
    whose: dict[int, list[NDArray[np.int64]]] = {}
    for run in runs:
        whose.setdefault(int(strata[run[0]]), []).append(run)
    found = np.repeat(labels[None], count, axis=0)
    for group in whose.values():
        sizes = {len(run) for run in group}
        drawn = rng.permuted(np.tile(np.arange(len(group)), (count, 1)), axis=1)
        if len(sizes) == 1:
            rows = np.stack(group)
            found[:, rows] = labels[rows][drawn]
            continue
        for copy, sources in zip(found, drawn, strict=True):
            for run, source in zip(group, sources, strict=True):
                copy[run] = np.resize(labels[group[source]], len(run))
    return found


def refit_scores(
    states: Float[Array, "rows width"],
    folds: Int[Array, "rows"],
    recipe: Recipe,
    seed: int,
    labels: Int[Array, "labellings rows"],
) -> Float[Array, "labellings rows"]:
    """Out-of-fold scores of many labellings by the probe's own recipe; a fold's states are scaled once."""
    found = np.zeros(labels.shape)
    for fold in np.unique(folds):
        test = folds == fold
        part = scaled(states[~test], recipe, seed)
        found[:, test] = refitted(part, labels[:, ~test], states[test], recipe)
    return found


def refitted(
    part: Scaled,
    labels: Int[Array, "labellings trained"],
    states: Float[Array, "asked width"],
    recipe: Recipe,
) -> Float[Array, "labellings asked"]:
    """Logits of ``states`` by the recipe fitted to each labelling of the states that ``part`` scaled."""
    asked = part.of(states)
    if asked.shape[1] == 0:
        return np.zeros((len(labels), len(asked)))
    rows, which = np.unique(part.train, axis=0, return_inverse=True)
    which = which.reshape(-1)
    if rows.shape[1] > len(rows):
        # With an L2 penalty the weights lie in the span of the rows: fit there.
        axes = np.linalg.svd(rows, full_matrices=False)[2]
        rows, asked = rows @ axes.T, asked @ axes.T
    size = np.bincount(which, minlength=len(rows)).astype(np.float64)
    refused = np.stack([np.bincount(which, one, len(rows)) for one in labels])
    z = np.c_[rows, np.ones(len(rows))]
    # Each fold's Hessians are [labellings, width, width], their makings [labellings, width, rows].
    block = max(1, _BLOCK // (z.shape[1] * (z.shape[1] + len(z))))
    weights = [
        logistic(z, refused[first : first + block], size, recipe) for first in range(0, len(refused), block)
    ]
    return np.asarray(np.concatenate(weights) @ np.c_[asked, np.ones(len(asked))].T)


def logistic(
    z: Float[Array, "rows width"],
    refused: Float[Array, "labellings rows"],
    size: Float[Array, "rows"],
    recipe: Recipe,
) -> Float[Array, "labellings width"]:
    """Weights of the recipe's logistic regression for each labelling by Newton's steps, the bias last.

    ``refused`` of ``size`` rows with one state were refusals. A labelling with one outcome gives weights 0.
    """
    strength, balanced = (0.03, True) if recipe == "pca" else (1.0, False)
    many = refused.sum(axis=1, keepdims=True)
    total = size.sum()
    mixed = (many > 0) & (many < total)
    up, down = np.where(mixed, refused, 0.0), np.where(mixed, size - refused, 0.0)
    if balanced:
        up, down = (part * total / np.maximum(2 * n, 1.0) for part, n in ((up, many), (down, total - many)))
    mass = strength * (up + down)
    penalty = np.ones(z.shape[1])
    penalty[-1] = 0.0
    # A little on the bias where a labelling has no row of one outcome and nothing else would hold it.
    ridge = np.diag(penalty + 1e-9)
    found = np.zeros((len(refused), z.shape[1]))
    for _ in range(_NEWTON):
        chance = 0.5 * (1 + np.tanh(found @ z.T / 2))
        slope = (mass * chance - strength * up) @ z + penalty * found
        bend = (z.T * (mass * chance * (1 - chance))[:, None, :]) @ z + ridge
        step = np.linalg.solve(bend, slope[..., None])[..., 0]
        # Far from the solution a whole step may overshoot; logits move by 4 at most.
        reach = np.abs(step @ z.T).max(axis=1, keepdims=True)
        found -= step * np.minimum(1.0, 4 / np.maximum(reach, 4.0))
        if reach.max() < 1e-4:
            break
    return found


@final
@dataclass(frozen=True, slots=True, eq=False)
class Null:
    """Shuffled labels of a probe and the scores of the probe refitted to them, [shuffles, rows] each."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        refit: Refit,
        labels: Int[Array, "rows"],
        prompts: Int[Array, "rows"],
        strata: Int[Array, "rows"],
        count: int = SHUFFLES,
        seed: int = 0,
    ) -> Null:
        """``count`` shuffles within ``strata``, each fitted anew.

        Raises: BadInput for fewer than 39 shuffles.
        """
        if count < FEWEST_SHUFFLES:
            raise BadInput(
                f"{count} shuffles have no 2.5 % at either end",
                where="probe",
                hint=f"{FEWEST_SHUFFLES} or more",
            )
        drawn = shuffled_labels(labels, prompts, strata, count, np.random.default_rng(seed))
        return cls(drawn, refit(drawn))

    def part(self, rows: NDArray[np.bool_]) -> Null:
        """Only some rows."""
        return Null(self.labels[:, rows], self.scores[:, rows])
