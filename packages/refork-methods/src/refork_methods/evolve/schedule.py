"""When judges may change, and when the archive may grow."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from refork.errors import BadInput

ALPHA = 0.6
RATIO = 2.0


def checkpoints(first: int, budget: int, ratio: float = RATIO) -> tuple[int, ...]:
    """Numbers of outcomes at which judges may change: each ``ratio`` times the last, below ``budget``.

    The budget itself is none: a judge that came in there would leave the archive without scores. What is
    erased at checkpoint c is at most c records, so all checkpoints together cost at most ``budget * ratio
    / (ratio - 1)`` re-scored records even where re-scoring is free of the budget (and at most ``budget``
    where it is not, as in :mod:`refork_methods.evolve.search`: a record is erased once).

    Raises: BadInput for a first checkpoint below 1, a budget below 1, or a ratio not above 1.
    Source: arXiv:2606.26294, Algorithm 1; the constants are ours.
    """
    if first < 1 or budget < 1 or not (ratio > 1 and math.isfinite(ratio)):
        raise BadInput(
            f"first {first}, budget {budget}, ratio {ratio!r}: the first checkpoint and the budget are at "
            "least 1, the ratio above 1"
        )
    found: list[int] = []
    value = float(first)
    while value < budget:
        found.append(math.ceil(value))
        # At least one further: under a ratio near 1 a checkpoint would be named twice.
        value = max(value * ratio, found[-1] + 1.0)
    return tuple(point for point in found if point < budget)


def next_boundary(outcomes: int, points: Sequence[int], budget: int) -> int:
    """The next checkpoint above ``outcomes``, or the budget: no batch crosses it."""
    after = bisect_right(points, outcomes)
    return min(points[after], budget) if after < len(points) else budget


def may_expand(outcomes: int, size: int, alpha: float = ALPHA) -> bool:
    """Whether an archive of ``size`` nodes may grow after ``outcomes`` outcomes: N ** alpha >= size.

    So an archive never holds more than ``1 + N ** alpha`` nodes.

    Raises: BadInput for a negative number of outcomes, an empty archive, or alpha outside (0, 1).
    Source: arXiv:2606.26294, Algorithm 1; UCB-Air, Wang, Audibert and Munos (2008).
    """
    if outcomes < 0 or size < 1 or not 0 < alpha < 1:
        raise BadInput(f"{outcomes} outcomes, {size} nodes, alpha {alpha!r}", hint="alpha 0.6")
    # A power that is whole must pass: 32 ** 0.6 is 8, whatever the last bit says.
    return outcomes > 0 and float(outcomes**alpha) >= size * (1 - 1e-12)
