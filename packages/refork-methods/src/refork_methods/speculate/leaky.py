"""Negative controls: schedules that look harmless and change the law of the output, and a lossless twin.

They are here to be caught (:func:`refork_methods.speculate.lossless.check_lossless`), not to be used.

Source: arXiv 2607.05147 (the retrospective arg-max); the other two are ours.
"""

from __future__ import annotations

from typing import final

import numpy as np
from jaxtyping import Float, Int

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.speculate.lossless import View
from refork_methods.speculate.schedule import Lengths, global_search
from refork_methods.speculate.step_cost import StepCost


@final
class RetrospectiveArgmax:
    """Leaks: the best lengths of this step, by confidences that read the drafts.

    Whether the first draft is verified then depends on the second confidence, which depends on the first
    draft.
    """

    def __init__(self, step_cost: StepCost) -> None:
        self.cost = step_cost

    def drafts(self, requests: int, recent: Float[Array, "g"] | None = None) -> bool:
        """Always."""
        return requests > 0

    def plan(
        self, survival: Float[Array, "R g"], limits: Int[Array, "R"] | None = None, others: int = 0
    ) -> Lengths:
        """The arg-max over the whole ranking."""
        return global_search(np.asarray(survival), self.cost)


@final
class DropUnlikely:
    """Leaks: a draft is dropped because its own draft probability is below ``cut``."""

    def __init__(self, cut: float) -> None:
        self.cut = _cut(cut)

    def choose(self, view: View) -> Lengths:
        """Lengths up to the first unlikely draft, without it."""
        return np.asarray(np.cumprod(view.own >= self.cut, axis=1).sum(axis=1), dtype=np.int64)


@final
class StopAfterUnlikely:
    """Lossless twin of :class:`DropUnlikely`: the unlikely draft is still verified, then it stops."""

    def __init__(self, cut: float) -> None:
        self.cut = _cut(cut)

    def choose(self, view: View) -> Lengths:
        """Lengths up to the first unlikely draft, with it."""
        likely = np.cumprod(view.own >= self.cut, axis=1).sum(axis=1)
        return np.asarray(np.minimum(likely + 1, view.own.shape[1]), dtype=np.int64)


def _cut(cut: float) -> float:
    if not 0 <= cut <= 1:
        raise BadInput(f"the cut is {cut}; it is a probability")
    return cut
