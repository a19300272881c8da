"""What the rounds of a speculator came to, by position of the block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.types import Json
from refork_methods.speculate.held_out import HeldOut

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
        # By law: of branches that are drawn with chance, and of greedy ones.
        self._lately = np.zeros((2, 2, g))
        self._passes = [0, 0]
        self.reset()

    def reset(self) -> None:
        """Begin to count anew. How drafts fared lately stays known."""
        self._counts = dict.fromkeys(("rounds", "passes", "plain", "drafted", "verified", "accepted"), 0)
        self._reached = np.zeros(self.g, dtype=np.int64)
        self._kept = np.zeros(self.g, dtype=np.int64)

    @property
    def seen(self) -> bool:
        """Whether any round was counted yet, before a reset too."""
        return any(self._passes)

    def plain(self) -> None:
        """A step without drafts."""
        self._counts["plain"] += 1

    def round(
        self,
        drafted: int,
        lengths: Ints,
        accepted: Ints,
        ended: NDArray[np.bool_],
        greedy: NDArray[np.bool_] | None = None,
    ) -> None:
        """A round of branches [n]: how many drafts were verified and kept, and which branches ended in it.

        ``greedy``: which of them are (None: none). What was drafted beyond an end was neither kept nor
        refused, so it does not count.
        """
        place = np.arange(self.g)
        reached = (place <= accepted[:, None]) & (place < lengths[:, None])
        reached &= ~(ended[:, None] & (place == accepted[:, None]))
        kept = place < accepted[:, None]
        counts = self._counts
        counts["rounds"] += len(lengths)
        counts["passes"] += 1
        counts["drafted"] += drafted
        counts["verified"] += int(lengths.sum())
        counts["accepted"] += int(accepted.sum())
        self._reached += reached.sum(axis=0)
        self._kept += kept.sum(axis=0)
        cold = np.zeros(len(lengths), dtype=np.bool_) if greedy is None else greedy
        for law, mine in enumerate((~cold, cold)):
            if mine.any():
                self._passes[law] += 1
                seen = np.stack([reached[mine].sum(axis=0), kept[mine].sum(axis=0)])
                self._lately[law] = DECAY * self._lately[law] + seen

    def recent(
        self, credit: float = 0.0, held: HeldOut | None = None, greedy: float = 0.0
    ) -> Float[np.ndarray, "g"] | None:
        """How often the first j drafts survived lately; None before the first round.

        ``greedy`` is the share of such branches: they are counted apart. A position that was not reached
        lately is taken to be as good as the one before it. ``credit``: so many rounds stand before the first,
        in which drafts fared as those that were ``held`` out (unknown: all kept); they fade as all rounds do.
        """
        found = [
            (share, self._survival(law, credit, held))
            for law, share in enumerate((1.0 - greedy, greedy))
            if share > 0
        ]
        known = [(share, values) for share, values in found if values is not None]
        if not known:
            return None
        mixed = np.sum([share * values for share, values in known], axis=0)
        return np.asarray(mixed / sum(share for share, _ in known))

    def _survival(self, law: int, credit: float, held: HeldOut | None) -> Float[np.ndarray, "g"] | None:
        """That of one law; what was never seen of it is taken from the other where nothing is credited."""
        rates = None if held is None else held.of(bool(law))
        before = np.ones(self.g) if rates is None else np.asarray(rates[: self.g], dtype=np.float64)
        seen = self._lately[law if credit or self._passes[law] else 1 - law]
        weight = credit * DECAY ** self._passes[law]
        reached, kept = seen[0] + weight, seen[1] + weight * before
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
