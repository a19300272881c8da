"""Stringency: how much more readily a judge accepts one source's work than another's."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from refork.errors import BadInput, CannotDo
from refork.stats.results import Array, Interval, check_level, finite, is_binary


def stringency_ratio(
    ai: Int[Array, "machine"],
    human: Int[Array, "human"],
    *,
    seed: int,
    level: float = 0.95,
    resamples: int = 10_000,
) -> Interval:
    """P(accept | machine-made) over P(accept | human-made), 1 is even-handed, with a bootstrap interval.

    Verdicts are 0 or 1, one per artifact. The two sources are resampled apart; the interval's ends are
    quantiles of the log-ratio, with half a verdict of each kind added to every rate, so that no resample
    is infinite and the interval has width even where all verdicts agree. A ratio is only a bias where the
    two sources' work is equally good: compare matched panels, or read it beside the truth.

    Raises:
        BadInput: no verdicts of a source, verdicts other than 0 and 1, fewer than 100 resamples.
        CannotDo: no human-made artifact was accepted, so there is nothing to divide by.
    Source: arXiv:2606.26294 (the ratio); interval ours.
    """
    check_level(level)
    if resamples < 100:
        raise BadInput(f"{resamples} resamples cannot carry an interval", hint="at least 100")
    sides = [finite(ai, "machine verdicts"), finite(human, "human verdicts")]
    if not all(is_binary(side) for side in sides):
        raise BadInput("verdicts are 0 or 1")
    taken = [int(side.sum()) for side in sides]
    if taken[1] == 0:
        raise CannotDo(
            f"none of {sides[1].size} human-made artifacts was accepted: the ratio has no denominator",
            hint="compare the two rates, or judge more human-made work",
        )
    rng = np.random.default_rng([seed, 178])
    # Resampling n verdicts of 0 and 1 is one binomial draw.
    drawn = [
        (rng.binomial(side.size, (k + 0.5) / (side.size + 1), resamples) + 0.5) / (side.size + 1)
        for side, k in zip(sides, taken, strict=True)
    ]
    ends = np.quantile(np.log(drawn[0]) - np.log(drawn[1]), [(1 - level) / 2, (1 + level) / 2])
    estimate = (taken[0] / sides[0].size) / (taken[1] / sides[1].size)
    low, high = np.exp(ends)
    # With few verdicts the added half may move an end past the estimate.
    return Interval(
        estimate, min(float(low), estimate), max(float(high), estimate), level, "bootstrap log-ratio"
    )
