"""An index of a snapshot, made in one pass and kept nowhere: symbols, imports, calls, words."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import final

import networkx as nx
import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_matrix

from refork.errors import BadInput
from refork_methods.localize.callgraph import call_graph
from refork_methods.localize.facts import FileFacts, Symbol
from refork_methods.localize.imports import ImportGraph, import_graph
from refork_methods.localize.lexing import FIELDS, Names
from refork_methods.localize.reader import read_files
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.terms import name_words

# Counts of words by symbol and field, as sparse arrays in order of words.


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
    # Each name is split into words once; counts of words are then one product of sparse matrices.
    made_of = csr_matrix(
        (np.ones(len(flat), np.int64), sorted_place[flat] if len(flat) else flat, starts),
        shape=(len(names.vocabulary), len(words)),
    )
    # The types are those of the arrays' codes ``i`` and ``b``: the bytes are read as they lie.
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
        # A sparse product leaves the rows of a column in any order, and `Postings` promises rising ones.
        by_word.sort_indices()
        lengths = np.asarray(by_word.sum(axis=1)).ravel()
        out[name] = Postings(
            by_word.indptr.astype(np.int64),
            by_word.indices.astype(np.int32),
            by_word.data.astype(np.int32),
            lengths,
        )
    return order, out


# An index of a snapshot, made in one pass and kept nowhere: symbols, imports, calls, words.


@final
class RepoIndex:
    """What a snapshot's files say, found again by number and line.

    ``symbols``: of all files, by path and line; a symbol's position is its number. ``words``: word -> its
    number;
    ``postings``: field (see :data:`FIELDS`) -> counts; both empty where words were not asked for.
    """

    def __init__(self, snapshot: Snapshot, files: dict[str, FileFacts], names: Names | None = None) -> None:
        self.snapshot = snapshot
        self.files = MappingProxyType(files)
        self.symbols: tuple[Symbol, ...] = tuple(
            symbol for facts in files.values() for symbol in facts.symbols
        )
        self.words, self.postings = postings_of(names, len(self.symbols)) if names else ({}, {})
        self._numbers = {symbol.id: number for number, symbol in enumerate(self.symbols)}

    @classmethod
    def build(cls, snapshot: Snapshot, words: bool = True) -> RepoIndex:
        """The index of a snapshot. ``words``: count the words of every symbol, which retrieval needs."""
        files, names = read_files(snapshot, words)
        return cls(snapshot, files, names)

    @cached_property
    def import_links(self) -> ImportGraph:
        """Resolved imports with their lines and names."""
        return import_graph(self.files, self.snapshot)

    @cached_property
    def imports(self) -> "nx.DiGraph[str]":
        """Path -> path that it imports, all files being nodes; edges have ``lines`` and ``names``."""
        return self.import_links.graph

    @cached_property
    def calls(self) -> "nx.DiGraph[str]":
        """Symbol id -> id of a symbol it calls; edges have ``weight`` in (0, 1], ``sure`` and ``line``."""
        return call_graph(self.files, self.symbols, self.import_links)

    def number(self, symbol_id: str) -> int:
        """A symbol's number. Raises BadInput where there is no such symbol."""
        try:
            return self._numbers[symbol_id]
        except KeyError:
            raise BadInput(f"there is no symbol {symbol_id!r}", hint="ids are path::qualified.name") from None

    def at(self, path: str, line: int) -> Symbol | None:
        """The innermost symbol that holds a line; None where the file or the line is not there."""
        facts = self.files.get(path)
        if facts is None or not 1 <= line <= max(1, facts.lines):
            return None
        # Symbols stand by first line: the last that begins above and still holds the line is the innermost.
        starts = [symbol.start for symbol in facts.symbols[1:]]
        for symbol in reversed(facts.symbols[1 : 1 + bisect_right(starts, line)]):
            if symbol.end >= line:
                return symbol
        return facts.symbols[0]
