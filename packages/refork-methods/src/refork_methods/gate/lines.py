"""Convex piecewise linear functions on [0, 1] as the upper envelope of lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float


@final
@dataclass(frozen=True, slots=True)
class Envelope:
    """The maximum of lines (value at 0, value at 1), sorted by slope; line i is on top up to cut i."""

    lines: Float[np.ndarray, "lines 2"]
    cuts: Float[np.ndarray, "cuts"]

    def top(self, at: Float[np.ndarray, "points"]) -> Float[np.ndarray, "points 2"]:
        """The line on top at each point."""
        return np.asarray(self.lines[np.searchsorted(self.cuts, at)])

    def __call__(self, at: Float[np.ndarray, "points"]) -> Float[np.ndarray, "points"]:
        """The values."""
        return values(self.top(at), at)


def values(
    lines: Float[np.ndarray, "points 2"], at: Float[np.ndarray, "points"]
) -> Float[np.ndarray, points]:
    """The value of line i at point i."""
    return np.asarray((1 - at) * lines[..., 0] + at * lines[..., 1])


def envelope(lines: Float[np.ndarray, "lines 2"]) -> Envelope:
    """The upper envelope: only the lines that are on top somewhere in [0, 1]."""
    order = np.lexsort((lines[:, 0], lines[:, 1] - lines[:, 0]))
    kept: list[tuple[float, float]] = []
    cuts: list[float] = []
    for start, end in lines[order].tolist():
        while kept:
            steeper = (end - start) - (kept[-1][1] - kept[-1][0])
            meet = (
                (kept[-1][0] - start) / steeper
                if steeper > 0
                else (-np.inf if start >= kept[-1][0] else np.inf)
            )
            if meet > (cuts[-1] if cuts else 0.0):
                break
            kept.pop()
            if cuts:
                cuts.pop()
        if kept and meet >= 1:  # on top only beyond the last belief
            continue
        if kept:
            cuts.append(meet)
        kept.append((start, end))
    return Envelope(np.array(kept), np.array(cuts))
