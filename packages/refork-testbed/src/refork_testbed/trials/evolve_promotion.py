"""How often each rule replaces a judge by one that is no better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from refork.errors import BadInput
from refork.stats import Interval, clopper_pearson
from refork_methods.evolve.promote import paired_p

_BATCH = 2000


@final
@dataclass(frozen=True, slots=True)
class FalseReplacement:
    """Share of repetitions in which some challenger came in, by each rule, with exact intervals."""

    challengers: int
    best_belief: Interval
    paired: Interval


def false_replacement(
    challengers: int,
    *,
    items: int = 100,
    accuracy: float = 0.7,
    shared: float = 0.5,
    rate: float = 0.05,
    repetitions: int = 20_000,
    seed: int = 0,
    level: float = 0.95,
) -> FalseReplacement:
    """Replacement rates among equally good judges that answer the same anchor.

    Each judge has each item right with chance ``accuracy``; with chance ``shared`` an item is one that
    all answer as the incumbent does. With equal numbers of items a larger belief is one more item right,
    so the counts decide.

    Raises: BadInput for no challengers, items or repetitions, or chances outside [0, 1].
    Source: ours, on the rule of arXiv:2606.26294.
    """
    if min(challengers, items, repetitions) < 1 or not 0 <= accuracy <= 1 or not 0 <= shared <= 1:
        raise BadInput(
            "a rate of false replacement needs challengers, items, repetitions and chances in [0, 1]"
        )
    rng = np.random.default_rng([seed, challengers])
    taken = np.zeros(2, dtype=np.int64)
    for start in range(0, repetitions, _BATCH):
        size = min(_BATCH, repetitions - start)
        # Draws in single precision are five times as many per second, and no chance here needs more.
        held = rng.random((size, items), dtype=np.float32) < accuracy
        own = rng.random((size, items), dtype=np.float32) >= shared
        some = np.zeros((2, size), dtype=bool)
        for _ in range(challengers):
            theirs = rng.random((size, items), dtype=np.float32) < accuracy
            gains, losses = ((own & a & ~b).sum(axis=1) for a, b in ((theirs, held), (held, theirs)))
            some[0] |= gains > losses
            some[1] |= paired_p(gains, losses) <= rate / challengers
        taken += some.sum(axis=1)
    best, paired = (clopper_pearson(int(count), repetitions, level) for count in taken)
    return FalseReplacement(challengers, best, paired)
