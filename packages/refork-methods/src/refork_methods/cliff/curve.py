"""The success probability along one trace, boundary by boundary, as counts: pure.

A trace of T tokens has T + 1 boundaries. Boundary 0 is the plain pass rate and boundary T the trace's own
outcome, which is known; arXiv 2606.25524 values neither, so there the first token can never be a cliff.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.types import Json
from refork_methods.cliff.table import unpaired_error

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Curve:
    """Counts along one trace of T tokens.

    ``wins`` and ``draws`` [T]: sum of scores and graded continuations at the boundary before each token.
    ``outcome``: what the trace itself scored, None where nobody graded it. ``chance`` [T]: the token's
    probability under the distribution of the draws (NaN: not known). ``pairs``, ``pair_drop``,
    ``pair_square`` [T]: graded pairs across each token, the sum of their score differences and of the
    squares. ``sampled``: continuations that were really drawn; ``served``: draws they stand for; ``tokens``
    sampled.
    """

    wins: Floats
    draws: Ints
    outcome: float | None
    chance: Floats
    pairs: Ints
    pair_drop: Floats
    pair_square: Floats
    sampled: int
    served: int
    tokens: int

    def __post_init__(self) -> None:
        parts = (self.wins, self.draws, self.chance, self.pairs, self.pair_drop, self.pair_square)
        if len({len(part) for part in parts}) != 1:
            raise BadInput("the arrays of a curve differ in length", where="potential curve")

    def __len__(self) -> int:
        return len(self.wins)

    @property
    def value(self) -> Floats:
        """Mean score at every boundary, [T + 1]: before each token, and the outcome; NaN where unknown."""
        return np.append(_mean(self.wins, self.draws), np.nan if self.outcome is None else self.outcome)

    @property
    def drop(self) -> Floats:
        """Value before minus value after each token, [T]; along a graded trace they sum to V_0 - outcome."""
        return np.asarray(-np.diff(self.value))

    def unpaired_error(self) -> Floats:
        """Standard error of each drop as if its two sides were independent, [T] (the paper's)."""
        # Behind the last token stands one known outcome; being 0 or 1, it adds no variance.
        after = np.append(self.draws[1:], 1)
        value = self.value
        return unpaired_error(value[:-1], value[1:], self.draws, after)

    def paired_drop(self) -> Floats:
        """Mean score difference of the pairs across each token, [T]: the drop where all pairs are graded."""
        return _mean(self.pair_drop, self.pairs)

    def paired_error(self) -> Floats:
        """Standard error of each drop from its discordant pairs, [T]; right where draws are reused."""
        pairs = np.maximum(self.pairs, 2)  # of fewer nothing is said
        # Where all pairs agree, cancellation can leave a tiny negative sum of squares.
        spread = np.maximum(self.pair_square - self.pair_drop**2 / pairs, 0.0)
        return np.where(self.pairs > 1, np.sqrt(spread) / pairs, np.nan)

    def to_json(self) -> Json:
        """Plain fields; a probability that is not known is None."""
        rows = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in rows.items()}
        # JSON has no NaN. From None NumPy makes NaN again, so reading back needs no case of its own.
        return plain | {"chance": [None if np.isnan(c) else c for c in self.chance.tolist()]}

    @classmethod
    def from_json(cls, data: Json) -> Curve:
        """Inverse of :meth:`to_json`."""
        whole = {"draws", "pairs"}
        arrays = {
            name: np.array(value, dtype=np.int64 if name in whole else np.float64)
            for name, value in data.items()
            if isinstance(value, list)
        }
        return cls(**{**data, **arrays})

    def __add__(self, other: Curve) -> Curve:
        """Both samples together; they must be of the same trace and independent."""
        if len(other) != len(self) or other.outcome != self.outcome:
            raise BadInput("these curves are of different traces", where="potential curve")
        return replace(
            self,
            wins=self.wins + other.wins,
            draws=self.draws + other.draws,
            pairs=self.pairs + other.pairs,
            pair_drop=self.pair_drop + other.pair_drop,
            pair_square=self.pair_square + other.pair_square,
            sampled=self.sampled + other.sampled,
            served=self.served + other.served,
            tokens=self.tokens + other.tokens,
        )


def _mean(total: Floats, count: Ints) -> Floats:
    """Sums over their counts, NaN where nothing was counted."""
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def reuse_factor(curves: Iterable[Curve]) -> float:
    """Draws served per continuation really sampled, over some curves."""
    known = list(curves)
    served, sampled = sum(curve.served for curve in known), sum(curve.sampled for curve in known)
    if sampled == 0:
        raise BadInput("no continuation was sampled, so nothing can be said of reuse", where="cliff scan")
    return served / sampled
