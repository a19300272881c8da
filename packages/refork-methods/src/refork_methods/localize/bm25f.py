"""BM25F: one ranking of documents whose words stand in fields of unequal weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int, Shaped

from refork.errors import BadInput
from refork_methods.localize.index import Postings


@final
@dataclass(frozen=True, slots=True)
class Bm25f:
    """Settings: a weight per field, the length normalisation ``b`` (0 none, 1 full), the saturation ``k1``.

    A field without a weight is not read.

    Raises: BadInput for a negative weight, a ``b`` outside [0, 1], or ``k1`` that is not positive.
    """

    weights: Mapping[str, float]
    b: float = 0.5
    k1: float = 1.2

    def __post_init__(self) -> None:
        if any(weight < 0 for weight in self.weights.values()) or not any(self.weights.values()):
            raise BadInput("field weights are 0 or more, and one is above 0")
        if not 0 <= self.b <= 1 or self.k1 <= 0:
            raise BadInput("b lies in [0, 1] and k1 is above 0")


def term_scores(
    fields: Mapping[str, Postings], words: Int[np.ndarray, "words"], settings: Bm25f
) -> Float[np.ndarray, "words documents"]:
    """What each query word gives each document: idf times the saturated, field-weighted count.

    A document's score is the sum over words, each times its weight in the query.

    Raises: BadInput for a field that the index does not have, or no document.
    Source: Robertson, Zaragoza and Taylor (2004); idf is log(1 + (n - df + 1/2) / (df + 1/2)), never
    negative.
    """
    unknown = [name for name in settings.weights if name not in fields]
    if unknown:
        raise BadInput(f"no field {unknown[0]!r}", hint=f"one of {', '.join(fields)}")
    documents = next(iter(fields.values())).lengths.size
    if documents == 0:
        raise BadInput("there is no document to rank")
    heavy = np.zeros((words.size, documents))
    for name, weight in settings.weights.items():
        if weight > 0:
            _add_field(heavy, fields[name], words, weight, settings.b)
    holding = (heavy > 0).sum(axis=1)
    idf = np.log1p((documents - holding + 0.5) / (holding + 0.5))
    return np.asarray(idf[:, None] * heavy / (settings.k1 + heavy))


def _add_field(
    heavy: np.ndarray, postings: Postings, words: Int[np.ndarray, "words"], weight: float, b: float
) -> None:
    """Add one field's weighted, length-normalised counts to ``heavy``, in place."""
    lengths = postings.lengths.astype(np.float64)
    mean = lengths.mean()
    norm = 1 - b + b * lengths / mean if mean > 0 else np.ones_like(lengths)
    for row, word in enumerate(words):
        held = slice(postings.indptr[word], postings.indptr[word + 1])
        at = postings.symbols[held]
        # Fields are added before they saturate: a word in two fields is one word, not two.
        # A symbol stands once under a word; a second entry would be lost here.
        heavy[row, at] += weight * postings.counts[held] / norm[at]


def picked(postings: Postings, chosen: Int[np.ndarray, "chosen"]) -> Postings:
    """The counts of some symbols alone, numbered anew in the order of ``chosen``, which rises."""
    place = np.full(postings.lengths.size, -1, np.int64)
    place[chosen] = np.arange(chosen.size)
    held = place[postings.symbols] >= 0
    # Where a word's entries begin is how many are held before it.
    before = np.concatenate([[0], np.cumsum(held, dtype=np.int64)])
    return Postings(
        before[postings.indptr],
        place[postings.symbols[held]],
        postings.counts[held],
        postings.lengths[chosen],
    )


def grouped(postings: Postings, groups: Int[np.ndarray, "symbols"], count: int) -> Postings:
    """The same words counted by group of symbols, such as by file; ``groups`` says which group each is in."""
    words = np.repeat(np.arange(postings.indptr.size - 1), np.diff(postings.indptr))
    keys = words.astype(np.int64) * count + groups[postings.symbols]
    unique, inverse = np.unique(keys, return_inverse=True)
    counts = np.bincount(inverse, weights=postings.counts, minlength=unique.size).astype(np.int64)
    # Keys rise, so their words do: where a word would be put in is where its entries begin.
    indptr = np.searchsorted(unique // count if count else unique, np.arange(postings.indptr.size))
    lengths = np.bincount(groups, weights=postings.lengths, minlength=count).astype(np.int64)
    return Postings(indptr, unique % count if count else unique, counts, lengths)


def scaled(scores: Shaped[np.ndarray, "documents"]) -> Float[np.ndarray, "documents"]:
    """Scores divided by the largest, so that the best has 1; all 0 stays 0."""
    top = float(scores.max(initial=0.0))
    return np.asarray(scores / top if top > 0 else np.zeros(scores.shape))
