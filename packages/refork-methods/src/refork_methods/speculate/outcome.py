"""What is told of a round: to who counts, who calibrates, and who records what was not said."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from refork.decoding.speculator import ActiveRows, Drafts
from refork.policies.base import Sampling
from refork_methods.speculate.rounds import Round

Ints = NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rejected:
    """Drafts [k] that a branch did not say, in place of what it said from ``offset`` of its turn on."""

    request_id: int
    offset: int
    tokens: Ints


@final
@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A round of branches [n]: ``accepted`` drafts, none beyond an end; which branches ``ended`` in them."""

    branches: ActiveRows
    drafts: Drafts
    accepted: Ints
    ended: NDArray[np.bool_]

    @classmethod
    def of(cls, branches: ActiveRows, drafts: Drafts, accepted: Ints, eos: frozenset[int]) -> Outcome:
        """An outcome in which drafts behind the end of an answer do not count."""
        known = {id(settings): settings for settings in branches.settings}
        ends = {name: _ends(settings, eos) for name, settings in known.items()}
        accepted, ended = accepted.copy(), np.zeros(len(accepted), dtype=np.bool_)
        every = frozenset().union(*ends.values())
        kept = np.arange(drafts.tokens.shape[1]) < accepted[:, None]
        hits = kept & np.isin(drafts.tokens, list(every)) if every else kept & False
        for row, place in np.argwhere(hits)[::-1].tolist():
            if int(drafts.tokens[row, place]) in ends[id(branches.settings[row])]:
                accepted[row], ended[row] = place + 1, True
        return cls(branches, drafts, accepted, ended)

    def rejected(self) -> list[Rejected]:
        """The verified drafts that were not said."""
        turned = np.flatnonzero((self.accepted < self.drafts.lengths) & ~self.ended)
        return [
            Rejected(
                int(self.branches.request_id[row]),
                int(self.branches.said[row] + self.accepted[row]),
                self.drafts.tokens[row, self.accepted[row] : self.drafts.lengths[row]].copy(),
            )
            for row in turned.tolist()
        ]

    def rounds(
        self, rows: Ints, confidence: NDArray[np.float64], schedule: str | None, step: int, began: float
    ) -> list[Round]:
        """One record for each of ``rows``, whose confidence logits are [rows, g]."""
        seconds = time.perf_counter() - began
        batch = int(len(self.branches) + self.drafts.lengths.sum())
        return [
            Round(
                logits=tuple(logits),
                drafted=int(self.drafts.lengths[row]),
                accepted=int(self.accepted[row]),
                end_within=bool(self.ended[row]),
                schedule=schedule,
                anchor=int(self.branches.place[row]),
                step=step,
                tokens_in_batch=batch,
                seconds=seconds,
            )
            for row, logits in zip(rows.tolist(), confidence.tolist(), strict=True)
        ]


def _ends(settings: Sampling, eos: frozenset[int]) -> frozenset[int]:
    """Ids that end an answer under these settings; stop strings are not seen here."""
    own: Sequence[int] = settings.stop_ids
    return frozenset(own) | (frozenset() if settings.ignore_eos else eos)
