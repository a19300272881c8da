"""How far two theories' choices lie apart, in nats: the Jensen-Shannon divergence of their distributions."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.experiment import Experiment, generator, trial_orders

#: Runs on each side behind the published threshold; the estimate is biased upward, so both go together.
RUNS: Final = 300
#: Median of 50 random designs and three pairs of theories, at 300 runs. Source: arXiv:2606.26448 (code).
THRESHOLD: Final = 0.0407


def jsd(p: Float[Array, "... outcomes"], q: Float[Array, "... outcomes"]) -> Float[Array, "..."]:
    """Jensen-Shannon divergence of distributions along the last axis, in nats.

    0 iff they are equal, at most ln 2, and symmetric.

    Raises: BadInput for unequal shapes, negative chances, or sums that are not 1.
    Source: Lin, Divergence measures based on the Shannon entropy (1991).
    """
    x, y = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if x.shape != y.shape or x.ndim < 1:
        raise BadInput(f"distributions of shapes {x.shape} and {y.shape} cannot be compared")
    for distribution in (x, y):
        if not (
            np.isfinite(distribution).all()
            and (distribution >= 0).all()
            and np.allclose(distribution.sum(axis=-1), 1, atol=1e-9)
        ):
            raise BadInput("a distribution's chances must be 0 or more and sum to 1")
    middle = (x + y) / 2
    # np.where computes both of its branches: the inner ones keep 0 out of the logarithm and of the divisor.
    terms = sum(
        np.where(
            distribution > 0,
            distribution
            * np.log(np.where(distribution > 0, distribution / np.where(middle > 0, middle, 1), 1)),
            0,
        )
        for distribution in (x, y)
    )
    return np.asarray(np.clip(np.sum(terms, axis=-1) / 2, 0.0, math.log(2)))


def sequence_jsd(mine: Int[Array, "runs trials"], other: Int[Array, "others trials"]) -> float:
    """Mean over trials of the divergence between the joint distributions of (choice before, choice).

    Trial t must show the same stimulus in all runs. The first trial has no choice before it. Biased upward
    at finite runs: compare only values from equally many.

    Raises: BadInput for no run, unequal numbers of trials, or another choice than 0 and 1.
    Source: arXiv:2606.26448 (code).
    """
    sides = [np.asarray(side, dtype=np.int64) for side in (mine, other)]
    if any(side.ndim != 2 or not side.size for side in sides) or sides[0].shape[1] != sides[1].shape[1]:
        raise BadInput("two tables of choices must have runs, and as many trials")
    if not all(np.isin(side, (0, 1)).all() for side in sides):
        raise BadInput("a choice is 0 (option A) or 1 (option B)")
    distributions = [_joint(side) for side in sides]
    return float(jsd(distributions[0], distributions[1]).mean())


def _joint(choices: Int[Array, "runs trials"]) -> Float[Array, "trials 4"]:
    """Share of (before, now) = 00, 01, 10, 11 in each trial; before is 0 in the first."""
    # 0 stands for no choice in the first trial: there both sides have the same column.
    before = np.concatenate([np.zeros_like(choices[:, :1]), choices[:, :-1]], axis=1)
    cell = 2 * before + choices
    return np.stack([(cell == k).mean(axis=0) for k in range(4)], axis=1)


def discriminability(
    mine: Chooser, other: Chooser, experiment: Experiment, seed: int, *, runs: int = RUNS
) -> float:
    """Sequence divergence, in nats, of two theories' simulated people in one shared order of trials.

    The two sides draw independent people and noise: common noise would hide the estimate's bias.

    Raises: BadInput for no runs, or an experiment of another domain.
    """
    orders = trial_orders(experiment, runs, seed, shared=True)
    people, noise = generator(seed, "parameters"), generator(seed, "choices")
    sides = []
    for chooser in (mine, other):
        drawn = chooser.draw(experiment, runs, people)
        sides.append(chooser.respond(experiment, drawn, orders, noise.random(orders.shape)))
    return sequence_jsd(sides[0], sides[1])
