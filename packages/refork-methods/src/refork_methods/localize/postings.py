"""Counts of words by symbol and field, as sparse arrays in order of words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_matrix

from refork_methods.localize.lexing import FIELDS, Names
from refork_methods.localize.terms import name_words


@final
@dataclass(frozen=True, slots=True)
class Postings:
    """One field's counts by word and symbol.

    Word w stands in ``symbols[indptr[w]:indptr[w + 1]]`` (rising), ``counts`` times in each. ``lengths``: how
    many words the field has, by symbol.
    """

    indptr: Int[np.ndarray, "words_plus_1"]
    symbols: Int[np.ndarray, "entries"]
    counts: Int[np.ndarray, "entries"]
    lengths: Int[np.ndarray, "symbols"]

    def of(self, word: int) -> tuple[Int[np.ndarray, "found"], Int[np.ndarray, "found"]]:
        """(symbols, counts) of a word by its number."""
        kept = slice(self.indptr[word], self.indptr[word + 1])
        return self.symbols[kept], self.counts[kept]


def postings_of(names: Names, symbols: int) -> tuple[dict[str, int], dict[str, Postings]]:
    """(word -> number, field -> postings) of counted names: each name gives the words it is made of."""
    words: dict[str, int] = {}
    spelled: list[list[int]] = [
        [words.setdefault(word, len(words)) for word in name_words(name)] for name in names.vocabulary
    ]
    order = {word: place for place, word in enumerate(sorted(words))}
    sorted_place = np.fromiter((order[word] for word in words), np.int64, len(words))
    starts = np.concatenate([[0], np.cumsum([len(made) for made in spelled], dtype=np.int64)])
    flat = np.fromiter((word for made in spelled for word in made), np.int64, int(starts[-1]))
    made_of = csr_matrix(
        (np.ones(len(flat), np.int64), sorted_place[flat] if len(flat) else flat, starts),
        shape=(len(names.vocabulary), len(words)),
    )
    numbers = np.frombuffer(names.names, np.int32)
    holders = np.frombuffer(names.symbols, np.int32)
    counts = np.frombuffer(names.counts, np.int32).astype(np.int64)
    fields = np.frombuffer(names.fields, np.int8)
    out: dict[str, Postings] = {}
    for place, name in enumerate(FIELDS):
        mine = fields == place
        by_name = csr_matrix(
            (counts[mine], (holders[mine], numbers[mine])),
            shape=(symbols, len(names.vocabulary)),
            dtype=np.int64,
        )
        by_word = (by_name @ made_of).tocsc()
        by_word.sort_indices()
        lengths = np.asarray(by_word.sum(axis=1)).ravel()
        out[name] = Postings(
            by_word.indptr.astype(np.int64),
            by_word.indices.astype(np.int32),
            by_word.data.astype(np.int32),
            lengths,
        )
    return order, out
