"""What the rounds of a speculator came to, by position of the block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ramify.core.types import Json

Ints = NDArray[np.int64]

DECAY = 0.97
"""How much of what was seen lately still counts a round later."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class SpeculationStats:
    """Counts over branches and rounds.

    ``rounds`` are rounds of single branches, ``passes`` of whole batches, ``plain`` steps of whole batches
    without drafts. ``drafted`` tokens were proposed, ``verified`` sent through the model, ``accepted`` kept.
    ``reached`` and ``kept`` [g] are rounds in which the draft at a position was verified after all before it
    were kept, and was kept too.
    """

    rounds: int
    passes: int
    plain: int
    drafted: int
    verified: int
    accepted: int
    reached: Int[np.ndarray, "g"]
    kept: Int[np.ndarray, "g"]

    @property
    def tau(self) -> float | None:
        """Tokens of a round, the one after the drafts included; None before the first."""
        return 1.0 + self.accepted / self.rounds if self.rounds else None

    @property
    def accept_rate(self) -> list[float | None]:
        """Share of drafts at position 1, 2, ... kept, of those reached; None where none was."""
        return [int(k) / int(n) if n else None for k, n in zip(self.kept, self.reached, strict=True)]

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "rounds": self.rounds,
            "passes": self.passes,
            "plain_steps": self.plain,
            "drafted": self.drafted,
            "verified": self.verified,
            "accepted": self.accepted,
            "tau": self.tau,
            "accept_rate": self.accept_rate,
        }


@final
class Tally:
    """Counts rounds as they end, and how often drafts survived lately."""

    def __init__(self, g: int) -> None:
        self.g = g
        self._lately = np.zeros((2, g))
        self._passes = 0
        self.reset()

    def reset(self) -> None:
        """Begin to count anew. How drafts fared lately stays known."""
        self._counts = dict.fromkeys(("rounds", "passes", "plain", "drafted", "verified", "accepted"), 0)
        self._reached = np.zeros(self.g, dtype=np.int64)
        self._kept = np.zeros(self.g, dtype=np.int64)

    @property
    def seen(self) -> bool:
        """Whether any round was counted yet, before a reset too."""
        return self._passes > 0

    def plain(self) -> None:
        """A step without drafts."""
        self._counts["plain"] += 1

    def round(self, drafted: int, lengths: Ints, accepted: Ints, ended: NDArray[np.bool_]) -> None:
        """A round of branches [n]: how many drafts were verified and kept, and which branches ended in it.

        What was drafted beyond an end was neither kept nor refused, so it does not count.
        """
        place = np.arange(self.g)
        reached = (place <= accepted[:, None]) & (place < lengths[:, None])
        reached &= ~(ended[:, None] & (place == accepted[:, None]))
        kept = place < accepted[:, None]
        counts = self._counts
        counts["rounds"] += len(lengths)
        counts["passes"] += 1
        self._passes += 1
        counts["drafted"] += drafted
        counts["verified"] += int(lengths.sum())
        counts["accepted"] += int(accepted.sum())
        seen = np.stack([reached.sum(axis=0), kept.sum(axis=0)])
        self._reached += seen[0]
        self._kept += seen[1]
        self._lately = DECAY * self._lately + seen

    def recent(
        self, credit: float = 0.0, rates: Sequence[float] | None = None
    ) -> Float[np.ndarray, "g"] | None:
        """How often the first j drafts survived lately; None before the first round.

        A position that was not reached lately is taken to be as good as the one before it. ``credit``: so
        many rounds stand before the first, in which the draft at position j survived in ``rates[j]`` of the
        cases where it was reached (None: always); they fade as all rounds do.
        """
        before = np.ones(self.g) if rates is None else np.asarray(rates[: self.g], dtype=np.float64)
        weight = credit * DECAY**self._passes
        reached, kept = self._lately[0] + weight, self._lately[1] + weight * before
        if reached[0] < 1e-6:
            return None
        known = reached > 1e-6
        last = np.maximum.accumulate(np.where(known, np.arange(self.g), 0))
        chance = (kept / np.where(known, reached, 1.0))[last]
        return np.asarray(np.cumprod(np.clip(chance, 0.0, 1.0)))

    @property
    def stats(self) -> SpeculationStats:
        """What was counted so far."""
        return SpeculationStats(**self._counts, reached=self._reached.copy(), kept=self._kept.copy())
