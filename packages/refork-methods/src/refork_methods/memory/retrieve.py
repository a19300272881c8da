"""Which texts and tools fit a query: BM25, dense vectors where there is an embedder, ranks fused.

Source: the defaults are ours; arXiv:2606.24151 says only that candidates are retrieved and then selected.
BM25 is the bm25s package's. Ties are broken by the order in which documents were made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput, MissingExtra

#: The constant of reciprocal-rank fusion; the usual value.
FUSION = 60
#: Candidates per kind before the selection.
CANDIDATES = 8

_WORD = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class Document:
    """Something that can be retrieved: its id, its kind ("plan", "fact", "pitfall" or "tool"), its text."""

    id: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A retrieved document, its fused score, its rank by words and by vectors (from 1; None: not ranked)."""

    document: Document
    score: float
    by_words: int | None
    by_vectors: int | None


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """Which model, for the record."""
        ...

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "texts dim"]:
        """One row per text."""
        ...


@final
class SentenceEmbedder:
    """A sentence-transformers model, by name or folder.

    Raises:
        MissingExtra: the package is not installed (extra ``dense``).
    """

    def __init__(self, model: str) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise MissingExtra("sentence-transformers", "dense") from error
        self._model = SentenceTransformer(model)
        self._name = model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "texts dim"]:
        """One row per text."""
        return np.asarray(self._model.encode(list(texts), show_progress_bar=False), dtype=np.float64)


def words_of(text: str) -> list[str]:
    """Words in small letters; ``list_contacts`` and ``app.function`` are split, plurals lose their s."""
    found = [word.lower() for word in _WORD.findall(text)]
    return [
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
        for word in found
    ]


def bm25_scores(texts: Sequence[str], query: str) -> Float[np.ndarray, "texts"]:
    """The BM25 score of every text; 0 where it shares no word with the query."""
    index = _index(tuple(texts))
    known = [word for word in words_of(query) if index is not None and word in index.vocab_dict]
    # bm25s fails on a query of no known word, and below on texts without any.
    if not known:
        return np.zeros(len(texts))
    found: Float[np.ndarray, "texts"] = np.asarray(index.get_scores(known), dtype=np.float64)
    return found


@lru_cache(maxsize=32)
def _index(texts: tuple[str, ...]) -> Any:
    """The BM25 index of texts, kept: a stream asks the same memory again and again."""
    import bm25s  # type: ignore[import-untyped]

    corpus = [words_of(text) for text in texts]
    if not any(corpus):
        return None
    index = bm25s.BM25(backend="numpy")
    index.index(corpus, show_progress=False)
    return index


def cosines(vectors: Float[np.ndarray, "n dim"], query: Float[np.ndarray, "dim"]) -> Float[np.ndarray, "n"]:
    """Cosine of every row with the query; 0 for a vector of length 0."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    found: Float[np.ndarray, "n"] = np.zeros(len(vectors))
    np.divide(vectors @ query, lengths, out=found, where=lengths > 0)
    return found


def ranks(scores: Float[np.ndarray, "n"], least: float = -np.inf) -> list[int]:
    """Places in order of falling score, those not above ``least`` left out; equal scores keep their order."""
    # Rounded, so that scores which differ by a rounding keep the documents' order.
    order = np.argsort(-np.round(scores, 9), kind="stable")
    return [int(place) for place in order if scores[place] > least]


def fuse(rankings: Sequence[Sequence[int]], constant: int = FUSION) -> list[tuple[int, float]]:
    """Reciprocal-rank fusion: the sum of 1 / (constant + rank) over rankings, best first, ties by place."""
    total: dict[int, float] = {}
    for ranking in rankings:
        for rank, place in enumerate(ranking, 1):
            total[place] = total.get(place, 0.0) + 1.0 / (constant + rank)
    return sorted(total.items(), key=lambda one: (-one[1], one[0]))


@final
class Retriever:
    """Candidates of every kind for a query. Vectors of documents are computed once."""

    def __init__(self, embedder: Embedder | None = None, per_kind: int = CANDIDATES) -> None:
        if per_kind < 1:
            raise BadInput("at least one candidate must be kept", where="per_kind")
        self.embedder = embedder
        self.per_kind = per_kind
        self._vectors: dict[str, Float[np.ndarray, "dim"]] = {}

    def candidates(self, documents: Sequence[Document], query: str) -> Mapping[str, tuple[Candidate, ...]]:
        """The best candidates of each kind that is there, best first."""
        if not query.strip():
            raise BadInput("the query is empty")
        kinds = dict.fromkeys(document.kind for document in documents)
        return {kind: self._of_kind([d for d in documents if d.kind == kind], query) for kind in kinds}

    def _of_kind(self, documents: Sequence[Document], query: str) -> tuple[Candidate, ...]:
        words = ranks(bm25_scores([document.text for document in documents], query), least=0.0)
        rankings = [words]
        vectors: list[int] = []
        if self.embedder is not None:
            rows = self._embedded([document.text for document in documents], self.embedder)
            vectors = ranks(cosines(rows, self._embedded([query], self.embedder)[0]), least=0.0)
            rankings.append(vectors)
        by_words = {place: rank for rank, place in enumerate(words, 1)}
        by_vectors = {place: rank for rank, place in enumerate(vectors, 1)}
        return tuple(
            Candidate(documents[place], score, by_words.get(place), by_vectors.get(place))
            for place, score in fuse(rankings)[: self.per_kind]
        )

    def _embedded(self, texts: Sequence[str], embedder: Embedder) -> Float[np.ndarray, "texts dim"]:
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            rows = np.asarray(embedder.embed(new), dtype=np.float64)
            if rows.ndim != 2 or len(rows) != len(new):
                raise BadInput(f"the embedder gave {rows.shape} for {len(new)} texts", where=embedder.name)
            self._vectors |= dict(zip(new, rows, strict=True))
        return np.stack([self._vectors[text] for text in texts])


def near_duplicates(
    texts: Sequence[str], embedder: Embedder | None = None, above: float = 0.9
) -> list[tuple[int, int, float]]:
    """Pairs of texts with a cosine above ``above``, nearest first: by the embedder, else by TF-IDF words."""
    if len(texts) < 2:
        return []
    if embedder is not None:
        rows = np.asarray(embedder.embed(list(texts)), dtype=np.float64)
    else:
        rows = _tf_idf(texts)
    # A text without words has length 0: it is like nothing, where a division by 0 would give NaN.
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    likeness = np.round(unit @ unit.T, 9)
    pairs = [
        (i, j, float(likeness[i, j]))
        for i in range(len(texts))
        for j in range(i + 1, len(texts))
        if likeness[i, j] > above
    ]
    return sorted(pairs, key=lambda one: (-one[2], one[0], one[1]))


def _tf_idf(texts: Sequence[str]) -> Float[np.ndarray, "texts words"]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    split = [words_of(text) for text in texts]
    if not any(split):
        return np.zeros((len(texts), 1))
    # Words are split already; the vectorizer's own pattern drops those of one letter.
    rows = TfidfVectorizer(analyzer=lambda words: words).fit_transform(split)
    dense: Float[np.ndarray, "texts words"] = np.asarray(rows.toarray(), dtype=np.float64)
    return dense
