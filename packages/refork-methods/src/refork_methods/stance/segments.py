"""Stance segments: a thinking cut into chunks, which way each leans, and where that turns.

A label is +1 where a chunk leans to comply, -1 to refuse, 0 neither. An oscillation is a turn from one sign
to the other.

Source: arXiv 2606.25013. Sentence ends are looked for at ``. ! ?`` before white space and at line ends; the
source does not say where.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol, final, runtime_checkable

import numpy as np
from jaxtyping import Shaped
from numpy.typing import NDArray

from refork.errors import BadInput, UserError
from refork.stats.results import Array

#: Characters of a merged chunk at most; of one that is dropped; chunks above which a trace is a loop.
MOST, LEAST, LOOP = 200, 20, 120
_END: Final = re.compile(r"(?<=[.!?])\s+|\n+")

#: Text of a chunk -> +1, 0 or -1.
Annotator = Callable[[str], int]


@runtime_checkable
class BatchAnnotator(Protocol):
    """An annotator that sees the request and all chunks of a trace at once; None where it gave no label."""

    def labels(self, prompt: str, chunks: Sequence[str]) -> list[int | None]:
        """A label per chunk."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Chunk:
    """Characters ``begin`` to ``end`` of a text."""

    begin: int
    end: int
    text: str


def chunks(text: str, most: int = MOST, least: int = LEAST) -> list[Chunk]:
    """Sentences merged greedily to at most ``most`` characters; chunks of ``least`` or fewer are dropped.

    A longer sentence stays whole. White space at the edges belongs to no chunk.
    """
    spans: list[tuple[int, int]] = []
    for begin, end in _sentences(text):
        if spans and end - spans[-1][0] <= most:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((begin, end))
    return [Chunk(b, e, text[b:e]) for b, e in spans if e - b > least]


def word_chunks(text: str) -> list[Chunk]:
    """Every word as a chunk: for planted worlds whose stance is a word."""
    return [Chunk(m.start(), m.end(), m.group()) for m in re.finditer(r"\S+", text)]


def _sentences(text: str) -> list[tuple[int, int]]:
    edges = [0, *(m.end() for m in _END.finditer(text)), len(text)]
    spans = []
    for begin, end in pairwise(edges):
        part = text[begin:end]
        bare = part.strip()
        if bare:
            first = begin + part.index(bare)
            spans.append((first, first + len(bare)))
    return spans


def annotate(
    annotators: Sequence[Annotator | BatchAnnotator], prompt: str, parts: Sequence[str]
) -> NDArray[np.float64]:
    """Labels [chunks, annotators]; NaN where an annotator failed or gave none.

    Raises: BadInput for a label other than +1, 0 and -1.
    """
    columns = []
    for annotator in annotators:
        said = (
            annotator.labels(prompt, parts)
            if isinstance(annotator, BatchAnnotator)
            else [_one(annotator, part) for part in parts]
        )
        if len(said) != len(parts) or not all(label is None or _is_stance(label) for label in said):
            raise BadInput("an annotator must give +1, 0 or -1 to every chunk", where="stance")
        columns.append([np.nan if label is None else float(label) for label in said])
    return np.array(columns, dtype=np.float64).reshape(len(annotators), len(parts)).T


def _is_stance(label: object) -> bool:
    return isinstance(label, int | float | np.number) and label in (1, 0, -1)


def _one(annotator: Annotator, part: str) -> int | None:
    try:
        return annotator(part)
    except UserError:
        raise
    except Exception:  # one chunk that an annotator cannot read leaves its trace out, not the run
        return None


def majority(labels: Shaped[Array, "chunks annotators"]) -> NDArray[np.float64]:
    """The label that more than half of the annotators give each chunk; NaN where none has that.

    A missing label is unresolved too. Raises: BadInput for an even number of annotators.
    """
    table = np.asarray(labels, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] % 2 == 0:
        raise BadInput(
            "stance labels need an odd number of annotators", where="stance", hint="one, or better three"
        )
    found = np.full(len(table), np.nan)
    for value in (-1.0, 0.0, 1.0):
        found[(table == value).sum(axis=1) * 2 > table.shape[1]] = value
    found[np.isnan(table).any(axis=1)] = np.nan
    return found


def forward_filled(labels: Shaped[Array, "chunks"]) -> NDArray[np.int64]:
    """Zeros take the last sign before them; those at the start stay 0. Raises BadInput for other labels."""
    signs = np.asarray(labels, dtype=np.float64)
    if signs.ndim != 1 or not np.isin(signs, (-1.0, 0.0, 1.0)).all():
        raise BadInput("a stance label is +1, 0 or -1; an unresolved chunk has none", where="stance")
    # The place of the latest sign at every chunk; -1 before the first one.
    last = np.maximum.accumulate(np.where(signs != 0, np.arange(len(signs)), -1))
    return np.where(last >= 0, signs[np.maximum(last, 0)], 0).astype(np.int64)


@final
@dataclass(frozen=True, slots=True)
class Segment:
    """Chunks ``begin`` to ``end`` that lean one way."""

    sign: int
    begin: int
    end: int

    @property
    def length(self) -> int:
        """Chunks."""
        return self.end - self.begin


def stance_segments(labels: Shaped[Array, "chunks"]) -> list[Segment]:
    """Runs of equal stance after forward-filling; chunks before the first stance are a segment of sign 0."""
    filled = forward_filled(labels)
    edges = [0, *(np.flatnonzero(np.diff(filled)) + 1).tolist(), len(filled)] if len(filled) else []
    return [Segment(int(filled[b]), b, e) for b, e in pairwise(edges)]


@final
@dataclass(frozen=True, slots=True)
class Oscillation:
    """Two neighbouring segments of opposite sign."""

    before: Segment
    after: Segment


def oscillations(
    labels: Shaped[Array, "chunks"], least_before: int = 1, least_after: int = 1
) -> list[Oscillation]:
    """Turns of stance whose sides have at least so many chunks.

    Raises: BadInput for a least length below 1, or a label that is none.
    """
    if min(least_before, least_after) < 1:
        raise BadInput("a side of an oscillation has at least one chunk", where="stance")
    found = stance_segments(labels)
    return [
        Oscillation(a, b)
        for a, b in pairwise(found)
        if a.sign * b.sign < 0 and a.length >= least_before and b.length >= least_after
    ]
