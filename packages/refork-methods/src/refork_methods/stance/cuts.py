"""Causal cuts: does a turn of stance move the outcome, or is it a performance?

Each oscillation is cut after its first and after its second side, the thinking closed by force, and answers
are drawn at both. *Meaningful*: the two rates differ by Fisher's test after Holm's correction over all cuts
of a model. *Locked*: the outcome was as good as fixed.

Source: arXiv 2606.25013. Its code calls a cut locked by the rate before alone (``pre``), its documentation by
both rates (``pre+post``); both are here, and neither is silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np

from refork import stats
from refork.errors import BadInput
from refork.types import Json

Locked = Literal["pre", "pre+post"]
#: A rate of compliance this near to 0 or 1 counts as fixed.
EDGE: Final = 0.05


@final
@dataclass(frozen=True, slots=True)
class Counts:
    """(complied, answers) at the cut before and behind one oscillation; ``sign``: where its text turns to."""

    before: tuple[int, int]
    after: tuple[int, int]
    sign: int


@final
@dataclass(frozen=True, slots=True)
class Cut:
    """One judged oscillation: the test, its Holm-adjusted p, and its cell."""

    counts: Counts
    p: float
    adjusted: float
    meaningful: bool
    locked: bool

    @property
    def difference(self) -> float:
        """Rate of compliance behind it minus the rate before it."""
        (k1, n1), (k2, n2) = self.counts.before, self.counts.after
        return k2 / n2 - k1 / n1

    @property
    def agrees(self) -> bool:
        """Whether the outcome moves the way the text does."""
        return self.difference * self.counts.sign > 0


@final
@dataclass(frozen=True, slots=True)
class CutTable:
    """All cuts of a model; shares have Wilson intervals and are None where there is nothing to divide by."""

    cuts: tuple[Cut, ...]
    rule: Locked
    alpha: float

    @property
    def cells(self) -> dict[str, int]:
        """Counts of the four cells."""
        found = {f"{a} {b}": 0 for a in ("locked", "wavering") for b in ("performative", "meaningful")}
        for cut in self.cuts:
            name = "locked" if cut.locked else "wavering"
            found[f"{name} {'meaningful' if cut.meaningful else 'performative'}"] += 1
        return found

    @property
    def performative(self) -> stats.Interval | None:
        """Share of cuts whose outcome does not move."""
        return _share([not cut.meaningful for cut in self.cuts])

    @property
    def locked(self) -> stats.Interval | None:
        """Share of cuts where the outcome was fixed."""
        return _share([cut.locked for cut in self.cuts])

    @property
    def agreement(self) -> stats.Interval | None:
        """Among meaningful cuts, the share that move the way their text says."""
        return _share([cut.agrees for cut in self.cuts if cut.meaningful])


def _share(hits: Sequence[bool]) -> stats.Interval | None:
    return stats.wilson(sum(hits), len(hits)) if hits else None


def is_locked(counts: Counts, rule: Locked = "pre", edge: float = EDGE) -> bool:
    """Whether the rate of compliance is at most ``edge`` or at least ``1 - edge``: before, or on either side.

    ``pre+post`` asks each side alone, so a swing from one end to the other counts as locked.
    """
    if rule not in ("pre", "pre+post"):
        raise BadInput(f"unknown rule {rule!r}", where="locked", hint="pre or pre+post")
    sides = [counts.before] if rule == "pre" else [counts.before, counts.after]
    # The margin keeps 5 of 100 inside 0.05, which floats do not promise of every count.
    return all(min(k, n - k) <= edge * n + 1e-9 for k, n in sides)


def judge_cuts(
    counts: Sequence[Counts], *, alpha: float = 0.05, locked: Locked = "pre", edge: float = EDGE
) -> CutTable:
    """Every oscillation with its two-sided Fisher test; all that are given are one family for Holm.

    Raises: BadInput for impossible counts, a side without answers, or an unknown rule.
    """
    for item in counts:
        if item.sign not in (1, -1):
            raise BadInput(f"an oscillation turns to +1 or -1, not {item.sign}", where="cuts")
    # Where outcomes are fixed the same counts come again and again.
    tests = {key: stats.fisher(*key).p for key in {(item.before, item.after) for item in counts}}
    p = np.array([tests[item.before, item.after] for item in counts], dtype=np.float64)
    adjusted = stats.holm(np.minimum(p, 1.0), alpha)
    return CutTable(
        tuple(
            Cut(
                item,
                float(p[i]),
                float(adjusted.p[i]),
                bool(adjusted.rejected[i]),
                is_locked(item, locked, edge),
            )
            for i, item in enumerate(counts)
        ),
        locked,
        alpha,
    )


def cut_json(cut: Cut) -> Json:
    """Plain fields of a judged cut."""
    return {
        "before": list(cut.counts.before), "after": list(cut.counts.after), "turns_to": cut.counts.sign,
        "difference": cut.difference, "p": cut.p, "p_holm": cut.adjusted, "meaningful": cut.meaningful,
        "locked": cut.locked, "agrees": cut.agrees,
    }  # fmt: skip
