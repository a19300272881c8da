"""What training says of a drafter: expected tokens of a round, acceptance by position, honesty of confidence.

All are teacher-forced: the tokens before a position are those that the target said. ``learned`` marks the
positions of a block that count; after the first that does not, a block drafts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float

from refork.types import Json


def tau_prob(accept: Float[np.ndarray, "n g"], learned: Bool[np.ndarray, "n g"]) -> float | None:
    """Mean over blocks of 1 + sum_k prod_{i <= k} c*_i, tokens of a round with the bonus one; None: no block.

    Source: arXiv:2607.05147 (its code). Positions that are not learned add nothing.
    """
    if not len(accept):
        return None
    return float(1 + _survival(accept, learned).sum(axis=1).mean())


def accept_rates(
    accept: Float[np.ndarray, "n g"], learned: Bool[np.ndarray, "n g"]
) -> tuple[float | None, ...]:
    """Mean c* at each position over the blocks that learn it (None: no block).

    It is the chance of acceptance given that all before it were accepted.
    """
    counts = learned.sum(axis=0)
    sums = np.where(learned, accept, 0.0).sum(axis=0)
    return tuple(float(s / c) if c else None for s, c in zip(sums, counts, strict=True))


def kept_rates(kept: Float[np.ndarray, "n g"], learned: Bool[np.ndarray, "n g"]) -> tuple[float | None, ...]:
    """How often position j is kept where all before it were, from chances (or 0 and 1) of each [n, g].

    Over the blocks that learn position j; None where no block gets there.
    """
    after = _survival(kept, learned)
    before = np.concatenate([np.ones((len(kept), 1)), after[:, :-1]], axis=1)
    some, all_ = (np.where(learned, part, 0.0).sum(axis=0) for part in (after, before))
    return tuple(float(s / c) if c else None for s, c in zip(some, all_, strict=True))


def confidence_cumprod_bias(
    confidence: Float[np.ndarray, "n g"],
    accept: Float[np.ndarray, "n g"],
    learned: Bool[np.ndarray, "n g"],
) -> float | None:
    """Mean of prod c - prod c* over learned positions: above 0, the drafter is too sure of itself."""
    if not learned.any():
        return None
    gap = _survival(confidence, learned) - _survival(accept, learned)
    return float(gap[learned].mean())


@final
@dataclass(frozen=True, slots=True)
class DraftMetrics:
    """Figures over some blocks. None: not computed (no such head, no block).

    ``kept_drawn`` and ``kept_greedy`` [g]: how often a draft is kept after all before it, where the text was
    drawn (chances under rejection) and where it is greedy (the likeliest token of both is the same).
    """

    blocks: int
    ce: float
    tv: float
    confidence: float | None
    total: float
    tau_prob: float | None
    accept_rate: tuple[float | None, ...]
    confidence_cumprod_bias: float | None
    kept_drawn: tuple[float | None, ...] | None = None
    kept_greedy: tuple[float | None, ...] | None = None

    def to_json(self) -> Json:
        """Plain fields, the log's names; ``tv`` is the L1 distance of the two laws, 0 .. 2."""
        return {
            "blocks": self.blocks,
            "loss": self.total,
            "ce": self.ce,
            "tv": self.tv,
            "conf": self.confidence,
            "tau_prob": self.tau_prob,
            "accept_rate": list(self.accept_rate),
            "confidence_cumprod_bias": self.confidence_cumprod_bias,
            "kept_drawn": _listed(self.kept_drawn),
            "kept_greedy": _listed(self.kept_greedy),
        }


def _survival(chance: Float[np.ndarray, "n g"], learned: Bool[np.ndarray, "n g"]) -> Float[np.ndarray, "n g"]:
    return np.cumprod(np.where(learned, chance, 0.0).astype(np.float64), axis=1)


def _listed(rates: tuple[float | None, ...] | None) -> list[float | None] | None:
    return None if rates is None else list(rates)
