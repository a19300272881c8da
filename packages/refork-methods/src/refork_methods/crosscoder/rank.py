"""Which features tell two kinds of text apart: effect size, tie-correct AUROC, fire rates, examples. Pure.

Source: arXiv:2606.26474 (columns, candidates, the set S); its main branch breaks ties by their order in
memory, which prints .990 for a feature whose AUROC is .711; ours counts ties half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork import stats
from refork.errors import BadInput
from refork.types import Json
from refork_methods.crosscoder.classes import Class, norm_classes, relative_norm
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.partition import Block

Floats = NDArray[np.float64]

#: A candidate fires on this share of the positive texts at least and of the negative ones at most.
FIRES, QUIET = 0.3, 0.1


@dataclass(frozen=True, slots=True)
class Example:
    """A token on which a feature fires: its value, the token's text and what stands around it."""

    value: float
    token: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """One feature over positive and negative texts.

    ``d`` is Cohen's d; ``auroc_low`` and ``auroc_high`` its AUROC's 95 % interval, None for a feature that
    never fires. ``block`` is where the partition put it, ``kind`` what its decoder norms say.
    """

    feature: int
    block: Block
    kind: Class
    relative_norm: float
    d: float
    auroc: float
    auroc_low: float | None
    auroc_high: float | None
    fires_positive: float
    fires_negative: float
    mean_positive: float
    mean_negative: float
    candidate: bool
    examples: tuple[Example, ...] = ()

    @property
    def positive(self) -> bool:
        """Whether it is larger on positive texts."""
        return self.d > 0

    def to_json(self) -> Json:
        """As plain JSON; an infinite d, of a feature constant on both sides, as text."""
        told: Json = {name: getattr(self, name) for name in self.__slots__ if name != "examples"}
        told["d"] = self.d if math.isfinite(self.d) else str(self.d)
        told["relative_norm"] = None if math.isnan(self.relative_norm) else self.relative_norm
        told["examples"] = [asdict(e) for e in self.examples]
        return told


def cohens_d(positive: Float[Floats, "n f"], negative: Float[Floats, "m f"]) -> Float[Floats, "f"]:
    """Difference of means over the pooled deviation ``sqrt((v_pos + v_neg) / 2)``, feature by feature.

    0 where both are constant and equal, infinite where they are constant and differ.
    """
    gap = positive.mean(axis=0) - negative.mean(axis=0)
    pooled = np.sqrt((positive.var(axis=0, ddof=1) + negative.var(axis=0, ddof=1)) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        # 0 / 0, of a feature that never fires, would be NaN and could not be ranked.
        return np.asarray(np.where(gap == 0, 0.0, gap / pooled))


def rank_features(
    model: CrossCoder,
    positive: Float[NDArray[np.floating], "n f"],
    negative: Float[NDArray[np.floating], "m f"],
) -> list[FeatureRow]:
    """Every feature of a crosscoder, by Cohen's d, largest first.

    ``positive`` and ``negative`` are feature values, one row a text (its last token, or a summary of it: rows
    must be independent for the intervals to hold).

    Raises: BadInput for values of another dictionary, or fewer than two rows of a kind.
    """
    x, y = np.asarray(positive, np.float64), np.asarray(negative, np.float64)
    if x.ndim != 2 or y.ndim != 2 or {x.shape[1], y.shape[1]} != {model.dict_size}:
        raise BadInput(
            f"values of shapes {x.shape} and {y.shape} are not of {model.dict_size} features", where="rank"
        )
    if min(len(x), len(y)) < 2:
        raise BadInput(f"{len(x)} positive and {len(y)} negative rows: two of each at least", where="rank")
    share = relative_norm(model)
    kinds = norm_classes(share)
    d, on, off = cohens_d(x, y), (x > 0).mean(axis=0), (y > 0).mean(axis=0)
    labels = np.repeat([1.0, 0.0], [len(x), len(y)])
    rows = []
    for block, at in model.blocks.items():
        for i in range(at.start, at.stop):
            area: tuple[float, float | None, float | None] = (0.5, None, None)
            if on[i] > 0 or off[i] > 0:
                found = stats.auroc(np.concatenate([x[:, i], y[:, i]]), labels)
                area = (found.estimate, found.low, found.high)
            rows.append(
                FeatureRow(
                    i,
                    block,
                    kinds[i],
                    float(share[i]),
                    float(d[i]),
                    *area,
                    float(on[i]),
                    float(off[i]),
                    float(x[:, i].mean()),
                    float(y[:, i].mean()),
                    bool(on[i] >= FIRES and off[i] <= QUIET),
                )
            )
    return sorted(rows, key=lambda row: (-row.d, row.feature))


def with_examples(
    rows: Sequence[FeatureRow],
    values: Float[NDArray[np.floating], "n f"],
    example: Callable[[int, float], Example],
    count: int = 5,
) -> list[FeatureRow]:
    """Rows with the ``count`` tokens on which each fires most; ``example`` names the token of a row."""
    told = []
    for row in rows:
        column = np.asarray(values)[:, row.feature]
        order = np.argsort(-column, kind="stable")[:count]
        shown = tuple(example(int(i), float(column[i])) for i in order if column[i] > 0)
        told.append(replace(row, examples=shown))
    return told


def counts(rows: Sequence[FeatureRow]) -> Json:
    """Features with d above 0 and candidates in each block, as the paper counts them."""
    return {
        block: {
            "features": sum(row.block == block for row in rows),
            "positive": sum(row.block == block and row.positive for row in rows),
            "candidates": sum(row.block == block and row.candidate for row in rows),
        }
        for block in ("A", "B", "shared")
    }
